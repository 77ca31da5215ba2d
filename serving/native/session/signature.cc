#include "session/signature.h"

#include <algorithm>
#include <set>

#include "base/refused.h"
#include "wire/tensor.h"

namespace hotrow_server {
namespace {

using Names = std::set<std::string>;

template <typename Map>
Names names_of(const Map& map) {
  Names names;
  for (const auto& [name, value] : map) names.insert(name);
  return names;
}

std::string join(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

Names without(const Names& names, const Names& others) {
  Names left;
  std::set_difference(names.begin(), names.end(), others.begin(), others.end(),
                      std::inserter(left, left.end()));
  return left;
}

std::optional<std::vector<int64_t>> declared_shape(const tensorflow::TensorInfo& info) {
  if (!info.has_tensor_shape() || info.tensor_shape().unknown_rank()) return std::nullopt;
  std::vector<int64_t> shape;
  for (const auto& dim : info.tensor_shape().dim()) shape.push_back(dim.size());
  return shape;
}

// "[-1,3]"
std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) {
    if (text.size() > 1) text += ',';
    text += std::to_string(size);
  }
  return text + "]";
}

void check_input_count(const tensorflow::SignatureDef& def, const PredictRequest& request) {
  const size_t sent = request.inputs.size(), declared = def.inputs().size();
  if (sent == declared || (sent < declared && !def.defaults().empty())) return;
  const Names given = names_of(request.inputs), wanted = names_of(def.inputs());
  refuse("input size does not match signature: " + std::to_string(sent) +
         "!=" + std::to_string(declared) + " len({" + join(given) + "}) != len({" + join(wanted) +
         "}). Sent extra: {" + join(without(given, wanted)) + "}. Missing but required: {" +
         join(without(wanted, given)) + "}.");
}

}  // namespace

Signature::Signature(std::string name, const tensorflow::SignatureDef& def, const Session& session)
    : name_(std::move(name)),
      def_(&def),
      default_rows_(session.report(name_, "hotrow_default_rows")),
      stale_rows_(session.report(name_, "hotrow_stale_rows")) {
  for (const std::string& alias : names_of(def.inputs())) {
    const std::string& tensor_name = def.inputs().at(alias).name();
    Feed feed{{alias, tensor_name, session.tensor(tensor_name)},
              nullptr,
              declared_shape(def.inputs().at(alias)),
              static_cast<TF_DataType>(def.inputs().at(alias).dtype())};
    if (const auto given = def.defaults().find(alias); given != def.defaults().end()) {
      feed.fallback = decode(given->second);
      if (feed.fallback == nullptr) refuse("the default of input " + alias + " cannot be read");
    }
    feeds_.push_back(std::move(feed));
  }
  for (const std::string& alias : names_of(def.outputs())) {
    const std::string& tensor_name = def.outputs().at(alias).name();
    fetches_.push_back({alias, tensor_name, session.tensor(tensor_name)});
  }
}

TF_Output Signature::Fetch::tensor() const {
  if (found.oper == nullptr) {
    refuse("Tensor " + tensor_name +
           ", specified in either feed_devices or fetch_devices was not found in the Graph");
  }
  return found;
}

bool Signature::Feed::takes(const TF_Tensor* tensor) const {
  if (!shape || TF_TensorType(tensor) != type) return true;
  if (static_cast<size_t>(TF_NumDims(tensor)) != shape->size()) return false;
  for (size_t i = 0; i < shape->size(); ++i) {
    if ((*shape)[i] >= 0 && (*shape)[i] != TF_Dim(tensor, static_cast<int>(i))) return false;
  }
  return true;
}

const Signature::Fetch* Signature::fetch(const std::string& alias) const {
  for (const Fetch& fetch : fetches_) {
    if (fetch.alias == alias) return &fetch;
  }
  return nullptr;
}

std::vector<const Signature::Fetch*> plan_predict(const Signature& signature,
                                                  PredictRequest* request, Run* run) {
  check_input_count(signature.def(), *request);
  for (const Signature::Feed& feed : signature.feeds()) {
    const auto input = request->inputs.find(feed.alias);
    TF_Tensor* value = feed.fallback.get();
    if (input != request->inputs.end()) {
      value = input->second.get();
      if (value == nullptr) refuse("tensor parsing error: " + feed.alias);
      run->owned.push_back(std::move(input->second));
    } else if (value == nullptr) {
      refuse("Signature input alias: " + feed.alias + "(feed name: " + feed.tensor_name +
             ") not found in request and no default value provided. Inputs expected to be in the "
             "request {" +
             join(names_of(request->inputs)) +
             "}, or default input alias set: " + join(names_of(signature.def().defaults())));
    }
    if (!feed.takes(value)) {
      run->undeclared += (run->undeclared.empty() ? "" : "; ") + ("input '" + feed.alias) +
                         "' has shape " + shape_text(value) + ", the signature takes " +
                         text_of(*feed.shape);
    }
    run->feeds.push_back(feed.tensor());
    run->inputs.push_back(value);
  }
  if (run->owned.size() != request->inputs.size()) {
    const Names given = names_of(request->inputs);
    const Names unknown = without(given, names_of(signature.def().inputs()));
    refuse("Inputs contains invalid name. Used request inputs: " + join(without(given, unknown)) +
           ", request input: " + join(given));
  }
  std::vector<const Signature::Fetch*> fetches;
  Names seen;
  for (const std::string& alias : request->output_filter) {
    const Signature::Fetch* const fetch = signature.fetch(alias);
    if (fetch == nullptr) {
      refuse("output tensor alias not found in signature: " + alias +
             " Outputs expected to be in the set {" + join(names_of(signature.def().outputs())) +
             "}.");
    }
    if (!seen.insert(alias).second) refuse("duplicate output tensor alias: " + alias);
    fetches.push_back(fetch);
  }
  if (fetches.empty()) {
    for (const Signature::Fetch& fetch : signature.fetches()) fetches.push_back(&fetch);
  }
  for (const Signature::Fetch* fetch : fetches) run->fetches.push_back(fetch->tensor());
  run->typical_nanos = signature.typical_nanos();
  return fetches;
}

}  // namespace hotrow_server
