#include "core/comm/thread_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>

#include "core/comm/rank_call.h"
#include "core/comm/rank_sums.h"

namespace hotrow {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than any caller waits; clocks overflow soon after.
constexpr double kLongestSeconds = 1e9;

// What a rank shows the other ranks: its call, and its memory until all have left.
struct Shown {
  RankCall call;
  const std::byte* send = nullptr;
  const size_t* send_bytes = nullptr;     // (R)
  const size_t* receive_bytes = nullptr;  // (R)
  size_t count = 0;                       // of all_reduce and broadcast
  int root = 0;
  const std::byte* sums = nullptr;  // of this rank's slice
};

// Ranks meet twice in a call. Each shows its memory before the first meeting, and keeps it until
// the second. The second meeting cannot fail, since all ranks came to the first.
class Group {
 public:
  Group(int size, double timeout_seconds)
      : size_(size),
        seconds_(timeout_seconds),
        shown_(static_cast<size_t>(size)),
        meetings_(static_cast<size_t>(size), 0),
        ended_(static_cast<size_t>(size), false) {}

  int size() const { return size_; }
  // What rank r shows; safe between two meetings.
  Shown& shown(int r) { return shown_[static_cast<size_t>(r)]; }

  void check() {
    std::lock_guard lock(mutex_);
    throw_if_failed();
  }

  void meet_first(int rank) {
    std::unique_lock lock(mutex_);
    throw_if_failed();
    const uint64_t mine = arrive(rank);
    const auto until = deadline();
    // The last rank to come notifies the others, so either all come or none.
    while (!all_came(mine) && !failed()) {
      if (const int gone = who_ended(mine); gone >= 0) {
        set_failure(rank, Code::kAborted, ended_text(shown(rank).call, gone));
      } else if (wait(lock, until) && !all_came(mine)) {
        set_failure(rank, Code::kDeadlineExceeded,
                    late_text(shown(rank).call, seconds_, late(mine)));
      }
    }
    if (!all_came(mine)) throw_if_failed();
  }
  void meet_again(int rank) {
    std::unique_lock lock(mutex_);
    const uint64_t mine = arrive(rank);
    changed_.wait(lock, [&] { return all_came(mine); });
  }

  void fail(int rank, Code code, const std::string& message) {
    std::lock_guard lock(mutex_);
    set_failure(rank, code, message);
  }
  void end(int rank) {
    std::lock_guard lock(mutex_);
    ended_[static_cast<size_t>(rank)] = true;
    changed_.notify_all();
  }

 private:
  bool failed() const { return code_ != Code::kOk; }
  void throw_if_failed() const {
    if (failed()) throw Error(code_, message_);
  }
  void set_failure(int rank, Code code, const std::string& message) {
    if (failed()) return;
    message_ = of_rank(rank, message);
    code_ = code == Code::kOk ? Code::kInternal : code;
    changed_.notify_all();
  }
  Clock::time_point deadline() const {
    if (!(seconds_ < kLongestSeconds)) return Clock::time_point::max();
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
  }
  // Whether `until` has passed.
  bool wait(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
    if (until == Clock::time_point::max()) {
      changed_.wait(lock);
      return false;
    }
    return changed_.wait_until(lock, until) == std::cv_status::timeout;
  }
  uint64_t arrive(int rank) {
    const uint64_t mine = ++meetings_[static_cast<size_t>(rank)];
    if (all_came(mine)) changed_.notify_all();
    return mine;
  }
  bool all_came(uint64_t meeting) const {
    return std::all_of(meetings_.begin(), meetings_.end(),
                       [&](uint64_t m) { return m >= meeting; });
  }
  std::vector<int> late(uint64_t meeting) const {
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r) {
      if (meetings_[static_cast<size_t>(r)] < meeting) ranks.push_back(r);
    }
    return ranks;
  }
  // A late rank that will not come, or -1.
  int who_ended(uint64_t meeting) const {
    for (const int r : late(meeting)) {
      if (ended_[static_cast<size_t>(r)]) return r;
    }
    return -1;
  }

  const int size_;
  const double seconds_;
  std::vector<Shown> shown_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> meetings_;
  std::vector<bool> ended_;
  Code code_ = Code::kOk;
  std::string message_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, std::shared_ptr<Group> group)
      : Communicator(rank, group->size()), group_(std::move(group)) {}
  ~ThreadCommunicator() override { group_->end(rank()); }

  void begin(const std::string& what) override {
    group_->check();
    what_ = what;
  }

  void all_to_all(const std::byte* send, const size_t* send_bytes, std::byte* receive,
                  const size_t* receive_bytes) override {
    Shown& mine = show(CollectiveKind::kAllToAll);
    mine.send = send;
    mine.send_bytes = send_bytes;
    mine.receive_bytes = receive_bytes;
    meet([&] {
      std::byte* to = receive;
      for (int r = 0; r < size(); ++r) {
        const Shown& other = group_->shown(r);
        const size_t before =
            std::accumulate(other.send_bytes, other.send_bytes + rank(), size_t{0});
        to = copy(other.send + before, receive_bytes[r], to);
      }
    });
  }

  void all_gather(const std::byte* send, std::byte* receive, const size_t* bytes) override {
    Shown& mine = show(CollectiveKind::kAllGather);
    mine.send = send;
    mine.send_bytes = bytes;
    meet([&] {
      std::byte* to = receive;
      for (int r = 0; r < size(); ++r) to = copy(group_->shown(r).send, bytes[r], to);
    });
  }

  void reduce_scatter(const float* send, float* receive, const size_t* counts) override {
    Shown& mine = show(CollectiveKind::kReduceScatter);
    mine.send = reinterpret_cast<const std::byte*>(send);
    mine.send_bytes = counts;
    const size_t begin = std::accumulate(counts, counts + rank(), size_t{0});
    meet([&] { sum<float>(receive, begin, counts[rank()]); });
  }

  void all_reduce(float* values, size_t count) override { reduce(values, count); }
  void all_reduce(double* values, size_t count) override { reduce(values, count); }

  void broadcast(std::byte* data, size_t bytes, int root) override {
    Shown& mine = show(CollectiveKind::kBroadcast);
    mine.send = data;
    mine.count = bytes;
    mine.root = root;
    meet([&] {
      if (rank() != root) copy(group_->shown(root).send, bytes, data);
    });
  }

  void barrier() override {
    show(CollectiveKind::kBarrier);
    meet([] {});
  }

  void fail(Code code, const std::string& message) override { group_->fail(rank(), code, message); }

 private:
  static std::byte* copy(const std::byte* from, size_t bytes, std::byte* to) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return to + bytes;
  }

  // No rank reads it before the first meeting, nor after the last meeting of the previous call.
  Shown& show(CollectiveKind kind) {
    Shown& mine = group_->shown(rank());
    mine = Shown();
    mine.call = {kind, what_};
    return mine;
  }

  template <typename Between>
  void meet(Between&& between) {
    group_->meet_first(rank());
    const std::string wrong = disagreement();
    if (wrong.empty()) between();
    group_->meet_again(rank());
    if (wrong.empty()) return;
    group_->fail(rank(), Code::kInternal, wrong);
    group_->check();
  }

  template <typename Value>
  void sum(Value* sums, size_t begin, size_t count) const {
    sum_in_rank_order(sums, count, size(), [&](int r) {
      return reinterpret_cast<const Value*>(group_->shown(r).send) + begin;
    });
  }

  // Each rank sums a slice; then all take all slices.
  template <typename Value>
  void reduce(Value* values, size_t count) {
    const auto begin_of = [&](int r) { return slice_begin(count, size(), r); };
    std::vector<Value> sums(begin_of(rank() + 1) - begin_of(rank()));
    Shown& mine = show(CollectiveKind::kAllReduce);
    mine.send = reinterpret_cast<const std::byte*>(values);
    mine.sums = reinterpret_cast<const std::byte*>(sums.data());
    mine.count = count * sizeof(Value);
    meet([&] {
      sum(sums.data(), begin_of(rank()), sums.size());
      group_->meet_again(rank());
      for (int r = 0; r < size(); ++r) {
        const size_t values_of = begin_of(r + 1) - begin_of(r);
        copy(group_->shown(r).sums, values_of * sizeof(Value),
             reinterpret_cast<std::byte*>(values + begin_of(r)));
      }
    });
  }

  // How the ranks' calls disagree, or ""; the same on all ranks. Sizes are compared only when all
  // are in the same call: other calls do not have them.
  std::string disagreement() const {
    const Shown& mine = group_->shown(rank());
    const Shown& first = group_->shown(0);
    for (int r = 1; r < size(); ++r) {
      if (!(first.call == group_->shown(r).call)) return of_others(first.call == mine.call ? r : 0);
    }
    for (int r = 0; r < size(); ++r) {
      const Shown& other = group_->shown(r);
      if (other.count != first.count || other.root != first.root) {
        return mine.call.text() + ": rank " + std::to_string(r) + " has " +
               std::to_string(other.count) + " bytes from rank " + std::to_string(other.root) +
               ", rank 0 " + std::to_string(first.count) + " from rank " +
               std::to_string(first.root);
      }
      for (int to = 0; to < size() && first.send_bytes != nullptr; ++to) {
        const size_t sent = other.send_bytes[to];
        const size_t expected = first.receive_bytes == nullptr ? first.send_bytes[to]
                                                               : group_->shown(to).receive_bytes[r];
        if (sent != expected) {
          return mine.call.text() + ": rank " + std::to_string(r) + " has size " +
                 std::to_string(sent) + " for rank " + std::to_string(to) + ", which has " +
                 std::to_string(expected);
        }
      }
    }
    return "";
  }
  std::string of_others(int r) const {
    return mismatch_text(group_->shown(rank()).call, r, group_->shown(r).call);
  }

  const std::shared_ptr<Group> group_;
  std::string what_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> thread_communicators(int count, double timeout_seconds) {
  if (count < 1) hotrow::fail(Code::kInvalidArgument, "%d ranks; at least 1", count);
  if (!(timeout_seconds > 0)) {
    hotrow::fail(Code::kInvalidArgument, "timeout of %g seconds; more than 0", timeout_seconds);
  }
  const auto group = std::make_shared<Group>(count, timeout_seconds);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int r = 0; r < count; ++r) all.push_back(std::make_unique<ThreadCommunicator>(r, group));
  return all;
}

}  // namespace hotrow
