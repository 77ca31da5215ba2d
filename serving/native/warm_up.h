// Requests that a version answers before clients reach it: the first run of a signature takes tens
// of milliseconds.
#pragma once

#include <memory>

#include "hotrow/protos/control.pb.h"
#include "servable.h"

namespace hotrow_server {

// Answers the warm-up requests of a load. Fails as the first one does that must not.
void warm_up(const hotrow::LoadRequest& load, const std::shared_ptr<Servable>& servable);

}  // namespace hotrow_server
