// hotrow-server: the data plane of `platform serve`. The control process starts it and sends it
// what to load and where to listen.
//
//     hotrow-server CONTROL_SOCKET OPS_LIBRARY LOG LIFELINE
//
// LOG: the descriptor of what is to become its standard error, after TensorFlow's greetings.
// LIFELINE: a descriptor; the process ends when that is readable. It outlives the control process
// that started it, for the next one, and ends with their supervisor, who holds the other end.
#include <absl/synchronization/mutex.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>

#include "base/log_line.h"
#include "control/service.h"
#include "control/socket.h"
#include "session/session.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: hotrow-server CONTROL_SOCKET OPS_LIBRARY LOG LIFELINE\n");
    return 2;
  }
  std::thread([lifeline = std::atoi(argv[4])] {
    char byte;
    while (read(lifeline, &byte, 1) < 0 && errno == EINTR) continue;
    std::_Exit(1);
  }).detach();
  // The control process decides when it ends; a terminal's interrupt reaches that one, too.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  // A file at the limit of its length is a full disk to what writes it.
  std::signal(SIGXFSZ, SIG_IGN);
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
    hotrow_server::log_line(hotrow_server::Level::kError, "main.cc",
                            std::string("hotrow-server cannot listen on ") + error.what());
    return 1;
  }
  control.wait_until_ended();
  // Nothing is left to be written. Threads of TensorFlow and gRPC may be at work, and what they use
  // is not to be taken apart beneath them.
  std::_Exit(0);
}
