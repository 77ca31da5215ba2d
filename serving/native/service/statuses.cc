#include "service/statuses.h"

#include <algorithm>

#include "base/refused.h"
#include "service/messages.h"
#include "wire/answer.h"

namespace hotrow_server {

namespace serving = tensorflow::serving;

serving::GetModelStatusResponse model_status(const hotrow::Statuses& statuses,
                                             const serving::ModelSpec& spec) {
  serving::GetModelStatusResponse found;
  for (const auto& model : statuses.models()) {
    if (model.name() != spec.name()) continue;
    if (!spec.has_version()) found = model.versions();
    for (const auto& version : model.versions().model_version_status()) {
      if (!spec.has_version() || version.version() != spec.version().value()) continue;
      *found.add_model_version_status() = version;
    }
  }
  if (found.model_version_status().empty()) {
    throw Refused(grpc::StatusCode::NOT_FOUND,
                  spec.has_version()
                      ? "Could not find version " + std::to_string(spec.version().value()) +
                            " of model " + spec.name()
                      : "Could not find any versions of model " + spec.name());
  }
  return found;
}

grpc::Status answer_model_status(const hotrow::Statuses& statuses, grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* reply) {
  return for_client(status_of([&] {
    const auto asked = parse<serving::GetModelStatusRequest>(request);
    if (!asked.has_model_spec()) {
      throw Refused(grpc::StatusCode::INVALID_ARGUMENT, "Missing ModelSpec");
    }
    serialize(model_status(statuses, asked.model_spec()), reply);
  }));
}

std::vector<std::string> waiting_models(const hotrow::Statuses& statuses) {
  std::vector<std::string> waiting;
  for (const auto& model : statuses.models()) {
    const auto& versions = model.versions().model_version_status();
    const bool serves = std::any_of(versions.begin(), versions.end(), [](const auto& version) {
      return version.state() == serving::ModelVersionStatus::AVAILABLE;
    });
    if (model.configured() && !serves) waiting.push_back(model.name());
  }
  return waiting;
}

}  // namespace hotrow_server
