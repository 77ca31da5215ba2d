#include "core/comm/mpi_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/base/back_off.h"
#include "core/comm/mpi_channel.h"
#include "core/comm/mpi_library.h"
#include "core/comm/rank_call.h"
#include "core/comm/rank_sums.h"

namespace hotrow {
namespace {

using Seconds = std::chrono::duration<double>;

// A rank that waits this long announces its collective: a quarter of the timeout, or less.
constexpr double kPatienceSeconds = 2;
// Values of at most this many bytes are exchanged once, and every rank sums all of them.
constexpr size_t kSmallSumBytes = 4096;

// Once a rank failed, MPI may write into memory that is free, if it is called again.
std::atomic<bool> over{false};

// MPI communicators for this core alone, with all processes.
std::vector<MPI_Comm> own_worlds(const MpiLibrary& mpi, size_t count, double timeout_seconds) {
  std::vector<MPI_Comm> comms(count);
  std::vector<MPI_Request> requests(count);
  for (size_t i = 0; i < count; ++i) {
    mpi.check(mpi.comm_idup(MPI_COMM_WORLD, &comms[i], &requests[i]), "MPI_Comm_idup");
  }
  BackOff back_off;
  for (size_t i = 0; i < count;) {
    int done = 0;
    mpi.check(mpi.test(&requests[i], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) {
      mpi.check(mpi.comm_set_errhandler(comms[i], MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
      ++i;
      continue;
    }
    back_off.pause();
    if (Seconds(back_off.waited()).count() > timeout_seconds) {
      fail(Code::kDeadlineExceeded, "waited %g s for the other ranks to start", timeout_seconds);
    }
  }
  mpi.remove_shared_memory_names();
  return comms;
}

int rank_of(const MpiLibrary& mpi) {
  int rank;
  mpi.check(mpi.comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}
int size_of(const MpiLibrary& mpi) {
  int size;
  mpi.check(mpi.comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  return size;
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::unique_ptr<MpiLibrary> mpi, double timeout_seconds)
      : Communicator(rank_of(*mpi), size_of(*mpi)),
        mpi_(std::move(mpi)),
        seconds_(timeout_seconds),
        patience_(std::min(kPatienceSeconds, timeout_seconds / 4)),
        comms_(own_worlds(*mpi_, kCollectiveKinds, timeout_seconds)),
        channel_(*mpi_, comms_[static_cast<size_t>(CollectiveKind::kNone)]) {}

  ~MpiCommunicator() override {
    try {
      channel_.check();
      if (mpi_->is_finalized()) return;
      for (size_t kind = 1; kind < comms_.size(); ++kind) mpi_->comm_free(&comms_[kind]);
    } catch (const Error&) {
      over = true;
    }
  }

  void begin(const std::string& what) override {
    channel_.look();
    what_ = what;
  }

  void all_to_all(const std::byte* send, const size_t* send_bytes, std::byte* receive,
                  const size_t* receive_bytes) override {
    const size_t n = static_cast<size_t>(size());
    std::vector<MPI_Count> to(send_bytes, send_bytes + n), from(receive_bytes, receive_bytes + n);
    exchange(CollectiveKind::kAllToAll, send, to, starts(to), receive, from);
  }

  // Sends a copy to each rank: MPI's own collective would forward data in several rounds, between
  // which ranks sleep.
  void all_gather(const std::byte* send, std::byte* receive, const size_t* bytes) override {
    gather(CollectiveKind::kAllGather, send, receive, bytes);
  }

  void reduce_scatter(const float* send, float* receive, const size_t* counts) override {
    scatter_sums(CollectiveKind::kReduceScatter, send, counts, receive);
  }

  void all_reduce(float* values, size_t count) override { reduce(values, count); }
  void all_reduce(double* values, size_t count) override { reduce(values, count); }

  void broadcast(std::byte* data, size_t bytes, int root) override {
    start(CollectiveKind::kBroadcast);
    MPI_Request request;
    check(mpi_->ibcast(place(data), static_cast<MPI_Count>(bytes), MPI_BYTE, root, comm_, &request),
          "MPI_Ibcast");
    wait(request);
  }

  void barrier() override {
    start(CollectiveKind::kBarrier);
    MPI_Request request;
    check(mpi_->ibarrier(comm_, &request), "MPI_Ibarrier");
    wait(request);
  }

  void fail(Code code, const std::string& message) override { channel_.fail(code, message); }

 private:
  // Some MPIs refuse null even for nothing.
  static std::byte* place(std::byte* data) {
    static std::byte nothing[1];
    return data == nullptr ? nothing : data;
  }
  static const std::byte* place(const std::byte* data) {
    return place(const_cast<std::byte*>(data));
  }
  static std::vector<MPI_Aint> starts(const std::vector<MPI_Count>& sizes) {
    std::vector<MPI_Aint> begin(sizes.size(), 0);
    std::partial_sum(sizes.begin(), sizes.end() - 1, begin.begin() + 1);
    return begin;
  }

  void start(CollectiveKind kind) {
    channel_.check();
    call_ = {kind, what_};
    comm_ = comms_[static_cast<size_t>(kind)];
    ++number_;
  }

  // Reports the failure to the other ranks, then throws.
  void check(int code, const char* what) {
    try {
      mpi_->check(code, what);
    } catch (const Error& error) {
      channel_.fail(error.code(), "in " + call_.text() + ": " + error.what());
      channel_.check();
    }
  }

  // to: (R) bytes for each rank, at to_begin[r] in `send`; from: (R), one after the other.
  void exchange(CollectiveKind kind, const std::byte* send, std::vector<MPI_Count>& to,
                const std::vector<MPI_Aint>& to_begin, std::byte* receive,
                std::vector<MPI_Count>& from) {
    start(kind);
    const std::vector<MPI_Aint> from_begin = starts(from);
    MPI_Request request;
    // A rank's data for itself need no MPI.
    const size_t me = static_cast<size_t>(rank());
    const size_t own = static_cast<size_t>(std::min(to[me], from[me]));
    if (own > 0) std::memcpy(receive + from_begin[me], send + to_begin[me], own);
    to[me] = from[me] = 0;
    check(mpi_->ialltoallv(place(send), to.data(), to_begin.data(), MPI_BYTE, place(receive),
                           from.data(), from_begin.data(), MPI_BYTE, comm_, &request),
          "MPI_Ialltoallv");
    wait(request);
  }

  void gather(CollectiveKind kind, const std::byte* send, std::byte* receive, const size_t* bytes) {
    const size_t n = static_cast<size_t>(size());
    std::vector<MPI_Count> to(n, static_cast<MPI_Count>(bytes[rank()])), from(bytes, bytes + n);
    exchange(kind, send, to, std::vector<MPI_Aint>(n, 0), receive, from);
  }

  // sums: (counts[rank]). Each owner adds in the order of the ranks: MPI's own sums guarantee no
  // order.
  template <typename Value>
  void scatter_sums(CollectiveKind kind, const Value* send, const size_t* counts, Value* sums) {
    const size_t n = static_cast<size_t>(size()), mine = counts[rank()];
    std::vector<MPI_Count> to(n), from(n, static_cast<MPI_Count>(mine * sizeof(Value)));
    for (size_t r = 0; r < n; ++r) to[r] = static_cast<MPI_Count>(counts[r] * sizeof(Value));
    Value* parts = room<Value>(n * mine);
    exchange(kind, bytes_of(send), to, starts(to), bytes_of(parts), from);
    sum_in_rank_order(sums, mine, size(),
                      [&](int r) { return parts + static_cast<size_t>(r) * mine; });
  }

  template <typename Value>
  void reduce(Value* values, size_t count) {
    const size_t n = static_cast<size_t>(size());
    if (count * sizeof(Value) <= kSmallSumBytes) {
      const std::vector<size_t> bytes(n, count * sizeof(Value));
      Value* all = room<Value>(n * count);
      gather(CollectiveKind::kAllReduce, bytes_of(values), bytes_of(all), bytes.data());
      sum_in_rank_order(values, count, size(),
                        [&](int r) { return all + static_cast<size_t>(r) * count; });
      return;
    }
    std::vector<size_t> counts(n), bytes(n);
    for (int r = 0; r < size(); ++r) {
      const size_t i = static_cast<size_t>(r);
      counts[i] = slice_begin(count, size(), r + 1) - slice_begin(count, size(), r);
      bytes[i] = counts[i] * sizeof(Value);
    }
    std::vector<Value> own(counts[static_cast<size_t>(rank())]);
    scatter_sums(CollectiveKind::kAllReduce, values, counts.data(), own.data());
    gather(CollectiveKind::kAllReduce, bytes_of(own.data()), bytes_of(values), bytes.data());
  }

  template <typename Value>
  static std::byte* bytes_of(Value* values) {
    return reinterpret_cast<std::byte*>(values);
  }
  template <typename Value>
  static const std::byte* bytes_of(const Value* values) {
    return reinterpret_cast<const std::byte*>(values);
  }
  // Memory for what the ranks sent; the next call reuses it.
  template <typename Value>
  Value* room(size_t count) {
    const size_t doubles = (count * sizeof(Value) + sizeof(double) - 1) / sizeof(double);
    if (room_.size() < doubles) room_.resize(doubles);
    return reinterpret_cast<Value*>(room_.data());
  }

  void wait(MPI_Request request) {
    BackOff back_off;
    for (bool announced = false;;) {
      int done = 0;
      check(mpi_->test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) {
        // Data from a rank that failed meanwhile may be damaged.
        channel_.look();
        return;
      }
      back_off.pause();
      if (!back_off.sleeps()) continue;
      channel_.look();
      const double waited = Seconds(back_off.waited()).count();
      if (compare_with_others() || waited > patience_) {
        if (!announced) channel_.announce(number_, call_);
        announced = true;
      }
      if (waited > seconds_) {
        channel_.fail(Code::kDeadlineExceeded, late_text(call_, seconds_, late()));
      }
      channel_.check();
    }
  }

  // Whether another rank waits in this collective. Fails when that rank is in a different one.
  bool compare_with_others() {
    bool waits = false;
    for (int r = 0; r < size(); ++r) {
      const MpiChannel::Waiting& waiting = channel_.waiting_of(r);
      if (r == rank() || waiting.number != number_) continue;
      waits = true;
      if (!(waiting.call == call_)) {
        channel_.fail(Code::kInternal, mismatch_text(call_, r, waiting.call));
      }
    }
    return waits;
  }
  std::vector<int> late() const {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && channel_.waiting_of(r).number < number_) ranks.push_back(r);
    }
    return ranks;
  }

  const std::unique_ptr<MpiLibrary> mpi_;
  const double seconds_, patience_;
  // One for each kind, so that ranks in different kinds do not receive each other's bytes. The
  // channel uses the one of no kind.
  std::vector<MPI_Comm> comms_;
  MpiChannel channel_;
  MPI_Comm comm_ = MPI_COMM_NULL;  // of the call
  std::string what_;
  RankCall call_;
  uint64_t number_ = 0;
  std::vector<double> room_;
};

}  // namespace

std::unique_ptr<Communicator> mpi_communicator(const std::string& library, double timeout_seconds) {
  if (!(timeout_seconds > 0)) {
    fail(Code::kInvalidArgument, "timeout of %g seconds; more than 0", timeout_seconds);
  }
  if (over) {
    fail(Code::kFailedPrecondition,
         "a rank failed, after which this process cannot use MPI any more: start it again");
  }
  return std::make_unique<MpiCommunicator>(std::make_unique<MpiLibrary>(library), timeout_seconds);
}

}  // namespace hotrow
