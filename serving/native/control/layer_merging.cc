#include "control/layer_merging.h"

#include <grpcpp/support/status.h>

#include "base/log_line.h"
#include "base/thread_priority.h"
#include "core/abi/c_api.h"

namespace hotrow_server {

LayerMerging::~LayerMerging() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void LayerMerging::want(const std::string& name, int64_t version) {
  const std::lock_guard lock(mutex_);
  wanted_.emplace(name, version);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void LayerMerging::run() {
  lower_priority();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !wanted_.empty(); });
    if (closed_) return;
    const auto [name, version] = *wanted_.begin();
    wanted_.erase(wanted_.begin());
    lock.unlock();
    const int code = hr_serving_merge_layers(name.c_str(), version);
    // Tables that are unloaded meanwhile have no layers. After any other failure lookups go on with
    // the layers as they are.
    if (code != 0 && code != grpc::StatusCode::NOT_FOUND && code != grpc::StatusCode::UNAVAILABLE) {
      log_line(Level::kWarning, "control/layer_merging.cc",
               std::string("layers of cuts are not merged: ") + hr_last_error());
    }
    lock.lock();
  }
}

}  // namespace hotrow_server
