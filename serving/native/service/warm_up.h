// Requests that a version answers before clients reach it: the first run of a signature takes tens
// of milliseconds.
#pragma once

#include <memory>

#include "hotrow/protos/control.pb.h"
#include "service/servable.h"

namespace hotrow_server {

// Answers the warm-up requests of a load, and fails as the first failing one does. Then it runs
// requests of zeros, if the load wants them; their failures are ignored.
void warm_up(const hotrow::LoadRequest& load, const std::shared_ptr<Servable>& servable);

}  // namespace hotrow_server
