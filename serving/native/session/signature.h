// A request's feeds and fetches, checked against a signature. The checks, their order and their
// messages match TF Serving's predict_util.cc, classifier.cc and regressor.cc and TensorFlow's
// cc/saved_model/util.cc. Declared shapes are never checked: the op refuses a wrong shape, and the
// declared shape is appended to its message.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/session.h"
#include "wire/predict_wire.h"

namespace hotrow_server {

// A signature with its tensors looked up.
class Signature {
 public:
  Signature(std::string name, const tensorflow::SignatureDef& def, const Session& session);

  const std::string& name() const { return name_; }
  const tensorflow::SignatureDef& def() const { return *def_; }

  struct Fetch {
    std::string alias, tensor_name;
    TF_Output found;
    // Fails with INVALID_ARGUMENT when the graph has no tensor of that name, for example for a
    // sparse input. The model's other signatures still serve.
    TF_Output tensor() const;
  };
  struct Feed : Fetch {
    Tensor fallback;  // null: the input is needed
    // The declared shape; -1: any size; none: any shape.
    std::optional<std::vector<int64_t>> shape;
    TF_DataType type;
    // False for a tensor of another shape; a wrong type is refused elsewhere.
    bool takes(const TF_Tensor* tensor) const;
  };
  // Both sorted by alias.
  const std::vector<Feed>& feeds() const { return feeds_; }
  const std::vector<Fetch>& fetches() const { return fetches_; }
  const Fetch* fetch(const std::string& alias) const;

  // How many rows of each sample are default rows because of a failure, and how many may be old:
  // int32. Without an operation when the signature looks up no rows.
  TF_Output default_rows() const { return default_rows_; }
  TF_Output stale_rows() const { return stale_rows_; }

  std::atomic<int64_t>* typical_nanos() const { return &typical_nanos_; }

 private:
  std::string name_;
  const tensorflow::SignatureDef* def_;
  std::vector<Feed> feeds_;
  std::vector<Fetch> fetches_;
  TF_Output default_rows_, stale_rows_;
  mutable std::atomic<int64_t> typical_nanos_{0};
};

// Plans the run of a request and returns its fetches; moves the request's inputs into the run.
// Fails with INVALID_ARGUMENT for inputs or outputs that the signature does not have, a missing
// input without a default, or a tensor that cannot be decoded.
std::vector<const Signature::Fetch*> plan_predict(const Signature& signature,
                                                  PredictRequest* request, Run* run);

}  // namespace hotrow_server
