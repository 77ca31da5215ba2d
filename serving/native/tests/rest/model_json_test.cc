#include "rest/model_json.h"

#include <doctest/doctest.h>

#include <string>

#include "base/refused.h"
#include "rest/json_text.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;

serving::GetModelStatusResponse two_versions() {
  serving::GetModelStatusResponse status;
  auto* version = status.add_model_version_status();
  version->set_version(3);
  version->set_state(serving::ModelVersionStatus::AVAILABLE);
  version->mutable_status();
  version = status.add_model_version_status();
  version->set_version(2);
  version->set_state(serving::ModelVersionStatus::END);
  version->mutable_status()->set_error_code(tensorflow::error::INVALID_ARGUMENT);
  version->mutable_status()->set_error_message("a \"b\"\n");
  return status;
}

}  // namespace

TEST_CASE("model_json: the status of a model's versions") {
  CHECK(status_json(two_versions()) == R"({
 "model_version_status": [
  {
   "version": "3",
   "state": "AVAILABLE",
   "status": {
    "error_code": "OK",
    "error_message": ""
   }
  },
  {
   "version": "2",
   "state": "END",
   "status": {
    "error_code": "INVALID_ARGUMENT",
    "error_message": "a \"b\"\n"
   }
  }
 ]
})");
  CHECK(status_json({}) == "{\n \"model_version_status\": []\n}");
}

TEST_CASE("model_json: the list of models") {
  hotrow::Statuses statuses;
  CHECK(models_json(statuses) == "{\n \"models\": []\n}");
  auto* model = statuses.add_models();
  model->set_name("a \"b\"");
  model->set_configured(true);
  *model->mutable_versions() = two_versions();
  model->mutable_versions()->mutable_model_version_status()->RemoveLast();
  statuses.add_models()->set_name("removed from the configuration");
  model = statuses.add_models();
  model->set_name("c");
  model->set_configured(true);
  CHECK(models_json(statuses) == R"({
 "models": [
  {
   "name": "a \"b\"",
   "model_version_status": [
    {
     "version": "3",
     "state": "AVAILABLE",
     "status": {
      "error_code": "OK",
      "error_message": ""
     }
    }
   ]
  },
  {
   "name": "c",
   "model_version_status": []
  }
 ]
})");
}

TEST_CASE("model_json: the signatures of a model, by name") {
  serving::GetModelMetadataResponse response;
  CHECK_THROWS_AS(metadata_json(response), Refused);
  response.mutable_model_spec()->set_name("m");
  response.mutable_model_spec()->mutable_version()->set_value(7);
  serving::SignatureDefMap signatures;
  auto& signature = (*signatures.mutable_signature_def())["b"];
  signature.set_method_name("predict");
  auto& input = (*signature.mutable_inputs())["x"];
  input.set_name("x:0");
  input.set_dtype(tensorflow::DT_FLOAT);
  input.mutable_tensor_shape()->add_dim()->set_size(-1);
  (*signature.mutable_outputs())["y"].mutable_tensor_shape()->set_unknown_rank(true);
  (*signatures.mutable_signature_def())["a"].set_method_name("m");
  for (int i = 0; i < 100; ++i) (*signatures.mutable_signature_def())["c" + std::to_string(i)];
  (*response.mutable_metadata())["signature_def"].PackFrom(signatures);
  const std::string text = metadata_json(response);
  const std::string expected = R"({
 "model_spec": {
  "name": "m",
  "signature_name": "",
  "version": "7"
 },
 "metadata": {
  "signature_def": {
   "signature_def": {
    "a": {
     "inputs": {},
     "outputs": {},
     "method_name": "m",
     "defaults": {}
    },
    "b": {
     "inputs": {
      "x": {
       "dtype": "DT_FLOAT",
       "tensor_shape": {
        "dim": [
         {
          "size": "-1",
          "name": ""
         }
        ],
        "unknown_rank": false
       },
       "name": "x:0"
      }
     },
     "outputs": {
      "y": {
       "dtype": "DT_INVALID",
       "tensor_shape": {
        "dim": [],
        "unknown_rank": true
       }
      }
     },
     "method_name": "predict",
     "defaults": {}
    },
    "c0": {)";
  CHECK(text.substr(0, expected.size()) == expected);
  CHECK(text.ends_with("\n    }\n   }\n  }\n }\n}"));
  CHECK(text.find("\"c98\"") < text.find("\"c99\""));
}

TEST_CASE("model_json: the text of a refusal is UTF-8") {
  CHECK(error_text("a \"b\"\n\x01") == "{ \"error\": \"a \\\"b\\\"\\n\\u0001\" }");
  CHECK(error_text("\xff\xe2\x82x\xc3\xa9\xe2") ==
        "{ \"error\": \"\xef\xbf\xbd\xef\xbf\xbdx\xc3\xa9\xef\xbf\xbd\" }");
}

}  // namespace hotrow_server
