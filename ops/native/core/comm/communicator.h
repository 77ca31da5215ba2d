// Collectives among the ranks of a run: by MPI in host memory, or by threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace hotrow {

// Thrown by work that failed on all ranks alike, after they agreed on the failure: they can
// continue together.
class AgreedError : public Error {
  using Error::Error;
};

// All ranks call the same collectives in the same order; Collectives (comm/collectives.h) ensures
// that. R ranks. A call returns when this rank's part is done; then the caller may reuse its
// memory. It fails
// - with the code given and "rank 1: <message>" on every rank, once a rank called `fail`;
// - with DeadlineExceeded on every rank, naming a rank that waited longer than the timeout, the
//   collective and the ranks that did not come;
// - with Aborted, naming a rank that has ended and will not come;
// - with Internal, when it shows that the ranks are in different collectives, or of other sizes;
// after which every further collective fails at once with the same error. Not safe for several
// threads, except for `fail`.
class Communicator {
 public:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Sets the purpose of the next collectives for messages: "rows of step 12". The same on all
  // ranks. Fails as the collectives do.
  virtual void begin(const std::string& what) = 0;

  // send: send_bytes[r] bytes for each rank r, one after the other; receive: receive_bytes[r] from
  // each. Both (R). A rank's data for itself are copied. The ranks must agree about sizes.
  virtual void all_to_all(const std::byte* send, const size_t* send_bytes, std::byte* receive,
                          const size_t* receive_bytes) = 0;
  // receive: bytes[r] from each rank r, one after the other. bytes: (R).
  virtual void all_gather(const std::byte* send, std::byte* receive, const size_t* bytes) = 0;
  // Sums of floating-point values are the same bits on every rank.
  // send: (sum of counts); receive: the sums of this rank's part, (counts[rank]). counts: (R).
  virtual void reduce_scatter(const float* send, float* receive, const size_t* counts) = 0;
  // values: (count), replaced by their sums.
  virtual void all_reduce(float* values, size_t count) = 0;
  virtual void all_reduce(double* values, size_t count) = 0;
  // data: (bytes); all ranks receive rank `root`'s.
  virtual void broadcast(std::byte* data, size_t bytes, int root) = 0;
  virtual void barrier() = 0;

  // Reports to all ranks that this rank failed. From any thread; the first message stays. Does not
  // throw.
  virtual void fail(Code code, const std::string& message) = 0;

 private:
  int rank_, size_;
};

}  // namespace hotrow
