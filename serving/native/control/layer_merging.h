// Merges layers of cuts beside requests, in a thread of low priority.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace hotrow_server {

class LayerMerging {
 public:
  LayerMerging() = default;
  LayerMerging(const LayerMerging&) = delete;
  // Ends after the merge under way.
  ~LayerMerging();

  // Merges the layers of tables if they are many, soon. name, version: by which lookups find them;
  // nothing happens if they are gone by then.
  void want(const std::string& name, int64_t version);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::pair<std::string, int64_t>> wanted_;
  bool closed_ = false;
  std::thread thread_;  // started by the first call
};

}  // namespace hotrow_server
