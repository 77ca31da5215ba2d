// The Unix socket of the control process: lengths and messages, as in protos/control.proto.
#pragma once

#include <string>

#include "control/service.h"

namespace hotrow_server {

// Answers on the socket in its own threads, until the process ends. Fails with std::system_error
// when it cannot listen.
void serve_control(const std::string& path, ControlService* control);

}  // namespace hotrow_server
