// Beside the collectives of MPI: what ranks report when something takes long or fails.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/comm/mpi_library.h"
#include "core/comm/rank_call.h"

namespace hotrow {

// Safe for several threads. Whoever reads does so between looks at a collective of its own, so
// nothing here waits for others, except that `fail` gives its message a second to leave.
class MpiChannel {
 public:
  // comm: its own; freed unless something failed.
  MpiChannel(const MpiLibrary& mpi, MPI_Comm comm);
  ~MpiChannel();
  MpiChannel(const MpiChannel&) = delete;

  // Throws what was reported by `fail`, here or on another rank. After that nobody here may call
  // MPI.
  void check() {
    if (failed_.load(std::memory_order_acquire)) throw_failure();
  }
  // Reports to all ranks; the first failure stays.
  void fail(Code code, const std::string& message);

  // Announces that this rank waits in its collective `number`.
  void announce(uint64_t number, const RankCall& call);
  // Receives what others sent. Throws as `check` does.
  void look();
  // The last collective in which a rank said that it waits; number 0: none. Of the thread that
  // looks.
  struct Waiting {
    uint64_t number = 0;
    RankCall call;
  };
  const Waiting& waiting_of(int rank) const { return waiting_[static_cast<size_t>(rank)]; }

 private:
  struct Sent {
    std::string bytes;
    MPI_Request request;
  };
  void send_to_others(int tag, const std::string& bytes);
  bool all_left();
  // Receives a message of a tag, if one is there; with the lock.
  bool receive(int tag, int* from, int* found_tag, std::string* bytes);
  [[noreturn]] void throw_failure();
  void take_failure(const std::string& bytes);

  const MpiLibrary& mpi_;
  MPI_Comm comm_;
  int rank_, size_;
  std::vector<Waiting> waiting_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Sent>> sent_;  // that MPI may still read
  std::atomic<bool> failed_{false};
  Code code_ = Code::kOk;
  std::string message_;
};

}  // namespace hotrow
