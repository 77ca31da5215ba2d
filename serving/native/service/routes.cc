#include "service/routes.h"

#include "base/refused.h"

namespace hotrow_server {

Routes::Routes(const hotrow::Routes& routes, const Servables& servables, const RequestLogs& logs)
    : proto_(routes) {
  for (const auto& model : routes.models()) {
    Model& own = models_[model.name()];
    own.labels.insert(model.labels().begin(), model.labels().end());
    if (const auto log = logs.find(model.name()); log != logs.end()) own.log = log->second;
    for (const auto& version : model.versions()) {
      const auto found = servables.find(version.servable());
      if (found == servables.end()) {
        throw Refused(grpc::StatusCode::NOT_FOUND,
                      "no servable " + std::to_string(version.servable()) + " is loaded");
      }
      own.versions[version.version()] = found->second;
    }
  }
}

Routes::Route Routes::find(const tensorflow::serving::ModelSpec& spec) const {
  if (spec.name().empty()) refuse("ModelSpec has no name specified.");
  const auto model = models_.find(spec.name());
  static const Model none;
  const Model& own = model == models_.end() ? none : model->second;
  bool specific = spec.has_version();
  int64_t version = spec.version().value();
  if (spec.version_choice_case() == tensorflow::serving::ModelSpec::kVersionLabel) {
    const auto label = own.labels.find(spec.version_label());
    if (label == own.labels.end()) {
      refuse("Unrecognized servable version label: " + spec.version_label());
    }
    specific = true;
    version = label->second;
  }
  auto found = own.versions.end();
  if (specific) {
    found = own.versions.find(version);
  } else if (!own.versions.empty()) {
    found = std::prev(own.versions.end());
  }
  if (found == own.versions.end()) {
    throw Refused(grpc::StatusCode::NOT_FOUND,
                  "Servable not found for request: " +
                      (specific ? "Specific(" + spec.name() + ", " + std::to_string(version) + ")"
                                : "Latest(" + spec.name() + ")"));
  }
  return {found->second, found->first, own.log};
}

}  // namespace hotrow_server
