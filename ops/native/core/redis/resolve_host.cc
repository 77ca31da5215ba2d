#include "core/redis/resolve_host.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/base/status.h"

namespace hotrow {
namespace {

// Shared with the resolving thread, which may end after all callers stopped waiting.
struct Answer {
  std::mutex mutex;
  std::condition_variable came;
  bool done = false;
  int error = 0;
  std::vector<std::string> addresses;
};

void ask(const std::string& host, Answer* answer) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  std::vector<std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* one = error == 0 ? found : nullptr; one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      char text[NI_MAXHOST];
      if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
        addresses.emplace_back(text);
      }
    }
  }
  if (error == 0) freeaddrinfo(found);
  const std::lock_guard<std::mutex> lock(answer->mutex);
  answer->error = error;
  answer->addresses = std::move(addresses);
  answer->done = true;
  answer->came.notify_all();
}

bool is_address(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

std::vector<std::string> resolve_host(const std::string& host,
                                      std::chrono::steady_clock::time_point deadline) {
  if (is_address(host)) return {host};
  const auto answer = std::make_shared<Answer>();
  try {
    // getaddrinfo has no deadline.
    std::thread([host, answer] { ask(host, answer.get()); }).detach();
  } catch (const std::system_error& error) {
    fail(Code::kUnavailable, "host %s: no thread to look it up: %s", host.c_str(), error.what());
  }
  std::unique_lock<std::mutex> lock(answer->mutex);
  if (!answer->came.wait_until(lock, deadline, [&] { return answer->done; })) {
    fail(Code::kUnavailable, "host %s: its address is not known in time", host.c_str());
  }
  if (answer->addresses.empty()) {
    fail(Code::kUnavailable, "host %s: %s", host.c_str(),
         answer->error != 0 ? gai_strerror(answer->error) : "it has no address");
  }
  return answer->addresses;
}

}  // namespace hotrow
