// hotrow-server: the data plane of `platform serve`. The control process starts it, and sends it
// the models to load and the addresses to listen on.
//
//     hotrow-server CONTROL_SOCKET OPS_LIBRARY LOG LIFELINE
//
// LOG: a descriptor that becomes its standard error after TensorFlow's startup messages. LIFELINE:
// a descriptor; the process ends when it is readable. The process outlives the control process that
// started it, so that the next one can use it. It ends with the supervisor, which holds the other
// end.
#include <absl/synchronization/mutex.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>

#include "base/log_line.h"
#include "base/thread_priority.h"
#include "control/service.h"
#include "control/socket.h"
#include "core/abi/c_api.h"
#include "session/session.h"

namespace {

// Clients, stores and files may be many, and the usual limit is 1024 for the sake of select(2),
// which nothing here calls.
void allow_many_files() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: hotrow-server CONTROL_SOCKET OPS_LIBRARY LOG LIFELINE\n");
    return 2;
  }
  hotrow_server::take_short_turns();
  std::thread([lifeline = std::atoi(argv[4])] {
    char byte;
    while (read(lifeline, &byte, 1) < 0 && errno == EINTR) continue;
    std::_Exit(1);
  }).detach();
  // The control process ends this process; a terminal's interrupt reaches the control process, too.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  // A write beyond the file size limit then fails with an error, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  // Debian builds Abseil with deadlock detection, which slows every lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  allow_many_files();
  hotrow_server::open_devices();
  hotrow_server::wait_in_threads_of_requests();
  hr_set_warn([](const char* message) {
    hotrow_server::log_line(hotrow_server::Level::kError, "main.cc", message);
  });
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
  // Nothing is left to write. Threads of TensorFlow and gRPC may still run, so the objects that
  // they use must not be destroyed.
  std::_Exit(0);
}
