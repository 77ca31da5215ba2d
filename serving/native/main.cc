// hotrow-server: the data plane of `platform serve`. The control process starts it and tells it
// what to load and where to listen.
//
//     hotrow-server CONTROL_SOCKET OPS_LIBRARY LOG
//
// LOG: the descriptor of what is to become its standard error, after TensorFlow's greetings.
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "control_service.h"
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
  hotrow_server::open_devices();
  const int log = std::atoi(argv[3]);
  dup2(log, STDERR_FILENO);
  close(log);
  hotrow_server::ControlService control(argv[2]);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort(std::string("unix:") + argv[1], grpc::InsecureServerCredentials());
  builder.RegisterService(&control);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "hotrow-server: cannot listen on %s\n", argv[1]);
    return 1;
  }
  control.wait_until_drained();
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  // Nothing is left to be written. Threads of TensorFlow and gRPC may be at work, and what they use
  // is not to be taken apart beneath them.
  std::_Exit(0);
}
