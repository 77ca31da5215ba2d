// Classify and Regress: serialized tf.Examples in, classes or values out. The checks and their
// texts are those of TF Serving's classifier.cc and regressor.cc.
#pragma once

#include <string>
#include <vector>

#include "session/signature.h"
#include "tensorflow_serving/apis/classification.pb.h"
#include "tensorflow_serving/apis/input.pb.h"
#include "tensorflow_serving/apis/regression.pb.h"

namespace hotrow_server {

// What a run fetches, its input's tensor apart.
struct ExamplePlan {
  const Signature::Feed* input;
  std::vector<const Signature::Fetch*> fetches;
};

ExamplePlan plan_classify(const Signature& signature);
ExamplePlan plan_regress(const Signature& signature);

// The examples as a tensor of strings [N]; a context is put before each one. Fails when there are
// none.
Tensor serialized_examples(const tensorflow::serving::Input& input);

// results: from `first` on, of the plan's fetches. rows: N.
void classify(const ExamplePlan& plan, const Results& results, size_t first, int64_t rows,
              tensorflow::serving::ClassificationResult* result);
void regress(const Results& results, size_t first, int64_t rows,
             tensorflow::serving::RegressionResult* result);

}  // namespace hotrow_server
