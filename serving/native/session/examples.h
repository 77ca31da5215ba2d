// Classify and Regress: serialized tf.Examples in, classes or values out. The checks and messages
// match TF Serving's classifier.cc and regressor.cc.
#pragma once

#include <string>
#include <vector>

#include "session/signature.h"
#include "tensorflow_serving/apis/classification.pb.h"
#include "tensorflow_serving/apis/input.pb.h"
#include "tensorflow_serving/apis/regression.pb.h"

namespace hotrow_server {

// The fetches of a run, and its input's tensor.
struct ExamplePlan {
  const Signature::Feed* input;
  std::vector<const Signature::Fetch*> fetches;
};

ExamplePlan plan_classify(const Signature& signature);
ExamplePlan plan_regress(const Signature& signature);

// The examples as a tensor of strings [N]; a context is prepended to each. Fails when there are no
// examples.
Tensor serialized_examples(const tensorflow::serving::Input& input);

// results: of the plan's fetches, starting at `first`. rows: N.
void classify(const ExamplePlan& plan, const Results& results, size_t first, int64_t rows,
              tensorflow::serving::ClassificationResult* result);
void regress(const Results& results, size_t first, int64_t rows,
             tensorflow::serving::RegressionResult* result);

}  // namespace hotrow_server
