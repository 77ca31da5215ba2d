#include "session/examples.h"

#include "base/refused.h"

namespace hotrow_server {
namespace {

constexpr char kInput[] = "inputs", kClasses[] = "classes", kScores[] = "scores",
               kValues[] = "outputs";

std::string type_name(TF_DataType type) {
  return tensorflow::DataType_Name(static_cast<tensorflow::DataType>(type));
}

const Signature::Feed* input_of(const Signature& signature) {
  for (const Signature::Feed& feed : signature.feeds()) {
    if (feed.alias == kInput) return &feed;
  }
  return nullptr;
}

void check_matrix(const std::string& alias, const TF_Tensor* tensor, TF_DataType type,
                  int64_t rows) {
  if (TF_NumDims(tensor) != 2) {
    refuse("Expected Tensor shape: [batch_size num_classes] but got " + shape_text(tensor));
  }
  if (TF_TensorType(tensor) != type) {
    refuse("Expected " + alias + " Tensor of " + type_name(type) +
           ". Got: " + type_name(TF_TensorType(tensor)));
  }
  if (TF_Dim(tensor, 0) != rows) {
    refuse("Expected " + alias + " output batch size of " + std::to_string(rows) +
           ". Got: " + std::to_string(TF_Dim(tensor, 0)));
  }
}

}  // namespace

ExamplePlan plan_classify(const Signature& signature) {
  if (signature.feeds().size() != 1) refuse("Expected one input Tensor.");
  const size_t outputs = signature.fetches().size();
  if (outputs != 1 && outputs != 2) {
    refuse("Expected one or two output Tensors, found " + std::to_string(outputs));
  }
  ExamplePlan plan{input_of(signature), {}};
  if (plan.input == nullptr) {
    refuse("No classification inputs found in SignatureDef: " + signature.def().DebugString());
  }
  for (const char* alias : {kClasses, kScores}) {
    if (const Signature::Fetch* fetch = signature.fetch(alias)) plan.fetches.push_back(fetch);
  }
  if (plan.fetches.empty()) {
    refuse(std::string("Expected classification signature outputs to contain at least one of \"") +
           kClasses + "\" or \"" + kScores + "\". Signature was: " + signature.def().DebugString());
  }
  return plan;
}

ExamplePlan plan_regress(const Signature& signature) {
  if (signature.feeds().size() != 1) refuse("Expected one input Tensor.");
  if (signature.fetches().size() != 1) refuse("Expected one output Tensor.");
  const ExamplePlan plan{input_of(signature), {signature.fetch(kValues)}};
  if (plan.input == nullptr) {
    refuse("No regression inputs found in SignatureDef: " + signature.def().DebugString());
  }
  if (plan.fetches[0] == nullptr) {
    refuse("No regression outputs found in SignatureDef: " + signature.def().DebugString());
  }
  return plan;
}

Tensor serialized_examples(const tensorflow::serving::Input& input) {
  std::string context;
  const auto* examples = &input.example_list().examples();
  if (input.has_example_list_with_context()) {
    context = input.example_list_with_context().context().SerializeAsString();
    examples = &input.example_list_with_context().examples();
  }
  if (examples->empty()) refuse("Input is empty.");
  // Protobuf parses concatenated messages as one merged message.
  std::vector<std::string> rows;
  rows.reserve(static_cast<size_t>(examples->size()));
  for (const auto& example : *examples) rows.push_back(context + example.SerializeAsString());
  return strings(rows);
}

void classify(const ExamplePlan& plan, const Results& results, size_t first, int64_t rows,
              tensorflow::serving::ClassificationResult* result) {
  const TF_Tensor *classes = nullptr, *scores = nullptr;
  for (size_t i = 0; i < plan.fetches.size(); ++i) {
    const bool labels = plan.fetches[i]->alias == kClasses;
    (labels ? classes : scores) = results[first + i];
    check_matrix(plan.fetches[i]->alias, results[first + i], labels ? TF_STRING : TF_FLOAT, rows);
  }
  if (classes != nullptr && scores != nullptr && TF_Dim(classes, 1) != TF_Dim(scores, 1)) {
    refuse("Tensors class and score should match in dim_size(1). Got " +
           std::to_string(TF_Dim(classes, 1)) + " vs. " + std::to_string(TF_Dim(scores, 1)));
  }
  const auto width = static_cast<size_t>(TF_Dim(classes != nullptr ? classes : scores, 1));
  const auto* const score =
      scores == nullptr ? nullptr : static_cast<const float*>(TF_TensorData(scores));
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    auto* const entry = result->add_classifications();
    for (size_t column = 0; column < width; ++column) {
      auto* const one = entry->add_classes();
      const size_t at = row * width + column;
      if (classes != nullptr) one->set_label(string_at(classes, at));
      if (score != nullptr) one->set_score(score[at]);
    }
  }
}

void regress(const Results& results, size_t first, int64_t rows,
             tensorflow::serving::RegressionResult* result) {
  const TF_Tensor* const values = results[first];
  const int rank = TF_NumDims(values);
  if (rank != 1 && !(rank == 2 && TF_Dim(values, 1) == 1)) {
    refuse("Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got " +
           shape_text(values));
  }
  if (TF_Dim(values, 0) != rows) {
    refuse("Input batch size did not match output batch size: " + std::to_string(rows) + " vs. " +
           std::to_string(TF_Dim(values, 0)));
  }
  if (TF_TensorType(values) != TF_FLOAT) {
    refuse("Expected output Tensor of DT_FLOAT.  Got: " + type_name(TF_TensorType(values)));
  }
  const auto* const value = static_cast<const float*>(TF_TensorData(values));
  for (int64_t row = 0; row < rows; ++row) result->add_regressions()->set_value(value[row]);
}

}  // namespace hotrow_server
