#include "core/comm/pending_all_reduce.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/base/status.h"

namespace hotrow {
namespace {

using Clock = std::chrono::steady_clock;

// Memory of finished sums that the next step reuses: a fresh page costs more than summing it.
constexpr size_t kSpare = 64;

struct Sum {
  std::weak_ptr<Collectives> ranks;
  uint64_t work = 0;
  std::shared_ptr<std::vector<float>> values;
};

struct Sums {
  std::mutex mutex;
  int64_t next = 1;
  std::unordered_map<int64_t, Sum> pending;
  std::vector<std::unique_ptr<std::vector<float>>> spare;
};

Sums& sums() {
  // Never destroyed: kernels may run while the process ends.
  static Sums* all = new Sums();
  return *all;
}

// (count); returned for reuse when no reference is left.
std::shared_ptr<std::vector<float>> take_values(size_t count) {
  std::unique_ptr<std::vector<float>> values;
  {
    std::lock_guard lock(sums().mutex);
    auto& spare = sums().spare;
    const auto fitting = std::find_if(spare.begin(), spare.end(),
                                      [&](const auto& s) { return s->capacity() >= count; });
    if (fitting != spare.end() && (*fitting)->capacity() <= 2 * count) {
      values = std::move(*fitting);
      spare.erase(fitting);
    }
  }
  if (values == nullptr) values = std::make_unique<std::vector<float>>();
  values->resize(count);
  return {values.release(), [](std::vector<float>* ended) {
            std::unique_ptr<std::vector<float>> owned(ended);
            std::lock_guard lock(sums().mutex);
            auto& spare = sums().spare;
            if (spare.size() >= kSpare) spare.erase(spare.begin());
            spare.push_back(std::move(owned));
          }};
}

void reduce(Communicator& ranks, const std::weak_ptr<Collectives>& counted,
            std::vector<float>& values) {
  const auto begin = Clock::now();
  ranks.all_reduce(values.data(), values.size());
  const auto took =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  // The bytes that a ring, or an exchange of slices, sends: all but the rank's own slice, as values
  // and as sums.
  const uint64_t n = static_cast<uint64_t>(ranks.size());
  const uint64_t bytes = 2 * values.size() * sizeof(float) * (n - 1) / n;
  if (const auto all = counted.lock())
    all->count("dense", bytes, bytes, static_cast<uint64_t>(took));
}

// Takes the sums whose ranks are gone, which will not be finished; their memory is freed outside
// the lock.
std::vector<Sum> take_ended() {
  std::vector<Sum> ended;
  std::lock_guard lock(sums().mutex);
  auto& all = sums().pending;
  for (auto i = all.begin(); i != all.end();) {
    if (i->second.ranks.expired()) {
      ended.push_back(std::move(i->second));
      i = all.erase(i);
    } else {
      ++i;
    }
  }
  return ended;
}

}  // namespace

int64_t start_sum(const std::shared_ptr<Collectives>& ranks, std::string what,
                  const std::vector<SumPart>& parts) {
  size_t count = 0;
  for (const SumPart& part : parts) count += part.count;
  const auto values = take_values(count);
  float* to = values->data();
  for (const SumPart& part : parts) to = std::copy_n(part.values, part.count, to);
  const std::weak_ptr<Collectives> counted = ranks;
  Sum sum = {counted, 0, values};
  sum.work = ranks->submit(std::move(what),
                           [values, counted](Communicator& own) { reduce(own, counted, *values); });
  take_ended();
  std::lock_guard lock(sums().mutex);
  const int64_t ticket = sums().next++;
  sums().pending.emplace(ticket, std::move(sum));
  return ticket;
}

void finish_sum(int64_t ticket, size_t count,
                std::function<void(std::exception_ptr, std::shared_ptr<const float>)> done) {
  Sum sum;
  {
    std::lock_guard lock(sums().mutex);
    const auto found = sums().pending.find(ticket);
    if (found == sums().pending.end()) {
      fail(Code::kInvalidArgument, "ticket %lld of a sum over ranks is unknown, or was waited for",
           static_cast<long long>(ticket));
    }
    if (found->second.values->size() != count) {
      fail(Code::kInvalidArgument, "a sum over ranks was started with %zu values and has %zu",
           found->second.values->size(), count);
    }
    sum = std::move(found->second);
    sums().pending.erase(found);
  }
  const auto ranks = sum.ranks.lock();
  if (ranks == nullptr) fail(Code::kAborted, "a sum over ranks ended: its ranks were closed");
  const auto values = std::shared_ptr<const float>(sum.values, sum.values->data());
  ranks->when_done(sum.work, [done = std::move(done), values](std::exception_ptr error) {
    done(std::move(error), values);
  });
}

}  // namespace hotrow
