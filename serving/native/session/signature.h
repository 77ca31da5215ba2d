// What a request feeds and fetches, checked against a signature. The checks, their order and their
// texts are those of TF Serving's predict_util.cc, classifier.cc and regressor.cc and TensorFlow's
// cc/saved_model/util.cc. Declared shapes are never checked: a wrong shape is the op's to refuse,
// and what was declared is added to its words.
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
    // Fails with INVALID_ARGUMENT when the graph has none of that name: a sparse input, say. The
    // other signatures of the model serve all the same.
    TF_Output tensor() const;
  };
  struct Feed : Fetch {
    Tensor fallback;  // null: the input is needed
    // What the signature declares, -1: any size; none: any shape.
    std::optional<std::vector<int64_t>> shape;
    TF_DataType type;
    // False for a tensor of another shape; one of another type is refused for that.
    bool takes(const TF_Tensor* tensor) const;
  };
  // Both by alias.
  const std::vector<Feed>& feeds() const { return feeds_; }
  const std::vector<Fetch>& fetches() const { return fetches_; }
  const Fetch* fetch(const std::string& alias) const;

  // How many rows of each sample are default rows because of a failure, and how many may be old:
  // int32; without an operation when it looks no rows up.
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

// Says what a request runs, and returns what it fetches; the request's inputs go into the run.
// Fails with INVALID_ARGUMENT for inputs or outputs that the signature does not have, a missing
// input without a default, or a tensor that cannot be decoded.
std::vector<const Signature::Fetch*> plan_predict(const Signature& signature,
                                                  PredictRequest* request, Run* run);

}  // namespace hotrow_server
