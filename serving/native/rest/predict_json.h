// The JSON bodies of :predict: a request's to tensors, tensors to a reply's. The rules and texts
// are those of TensorFlow Serving's util/json_tensor.cc.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rest/json_value.h"
#include "wire/predict_wire.h"

namespace hotrow_server {

// The form of a request, and of its reply.
enum class JsonForm {
  kRow,       // "instances", "predictions"
  kColumnar,  // "inputs", "outputs"
};

// An input of a signature.
struct JsonInput {
  std::string_view alias;
  TF_DataType type;
};

// The body's "signature_name"; empty if it has none. Fails with INVALID_ARGUMENT when it is no
// string.
template <typename Json>
std::string signature_name(const Json& body);

// The tensors of a body by input, and its form. inputs: sorted by alias. Fails with
// INVALID_ARGUMENT for a body that does not fit them, and with UNIMPLEMENTED for an input whose
// type has no JSON form.
template <typename Json>
std::map<std::string, Tensor> read_inputs(const Json& body, const std::vector<JsonInput>& inputs,
                                          JsonForm* form);

// The body of a reply: bare values for one output, objects for several. outputs: sorted by alias.
// Fails with INVALID_ARGUMENT for an output whose type has no JSON form, and, in rows, for outputs
// that do not agree in their 0th dimension.
std::string write_outputs(const std::vector<NamedOutput>& outputs, JsonForm form);

}  // namespace hotrow_server
