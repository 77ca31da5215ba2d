// Messages beside the collectives of MPI: ranks report slow collectives and failures.
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

// Safe for several threads. Threads call it while they poll a collective, so nothing here waits for
// other ranks, except that `fail` waits up to a second for its message to be sent.
class MpiChannel {
 public:
  // comm: a communicator of its own; freed unless a rank failed.
  MpiChannel(const MpiLibrary& mpi, MPI_Comm comm);
  ~MpiChannel();
  MpiChannel(const MpiChannel&) = delete;

  // Throws the failure that `fail` reported, here or on another rank. After that no thread of this
  // process may call MPI.
  void check() {
    if (failed_.load(std::memory_order_acquire)) throw_failure();
  }
  // Reports to all ranks; the first failure stays.
  void fail(Code code, const std::string& message);

  // Announces that this rank waits in its collective `number`.
  void announce(uint64_t number, const RankCall& call);
  // Receives messages of other ranks. Throws as `check` does.
  void look();
  // The last collective in which a rank announced that it waits; number 0: none. For the thread
  // that calls `look`.
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
  // Receives a message of a tag, if there is one. The caller holds the lock.
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
