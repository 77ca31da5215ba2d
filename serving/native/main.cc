// hotrow-server: the data plane of `platform serve`. The control process starts it and tells it
// what to load and where to listen.
//
//     hotrow-server CONTROL_SOCKET OPS_LIBRARY LOG
//
// LOG: the descriptor of what is to become its standard error, after TensorFlow's greetings.
#include <absl/synchronization/mutex.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "control_service.h"
#include "control_socket.h"
#include "session.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: hotrow-server CONTROL_SOCKET OPS_LIBRARY LOG\n");
    return 2;
  }
  // Without the process that started it nobody would end it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The control process decides when it ends; a terminal's interrupt reaches that one, too.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  // Debian builds Abseil with its search for deadlocks, in every lock that is taken.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  hotrow_server::open_devices();
  const int log = std::atoi(argv[3]);
  dup2(log, STDERR_FILENO);
  close(log);
  hotrow_server::ControlService control(argv[2]);
  try {
    hotrow_server::serve_control(argv[1], &control);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "hotrow-server: cannot listen on %s\n", error.what());
    return 1;
  }
  control.wait_until_ended();
  // Nothing is left to be written. Threads of TensorFlow and gRPC may be at work, and what they use
  // is not to be taken apart beneath them.
  std::_Exit(0);
}
