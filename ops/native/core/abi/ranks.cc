#include "core/abi/ranks.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/abi/guard.h"
#include "core/comm/collectives.h"
#include "core/comm/mpi_communicator.h"
#include "core/comm/pending_all_reduce.h"
#include "core/comm/thread_communicator.h"

using hotrow::Code;
using hotrow::Collectives;
using hotrow::Communicator;
using hotrow::capi::guarded;

struct hr_ranks {
  std::shared_ptr<Collectives> collectives;
};
struct hr_sums {
  std::shared_ptr<const float> values;
};
struct hr_gathered {
  std::vector<std::byte> data;
  std::vector<size_t> begin;  // (R + 1)
};

namespace {

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }

// values of each rank, one after the other: (R, count).
template <typename Value>
std::vector<Value> gather_values(Communicator& ranks, const Value* values, size_t count) {
  const size_t n = static_cast<size_t>(ranks.size());
  std::vector<Value> all(n * count);
  const std::vector<size_t> sizes(n, count * sizeof(Value));
  ranks.all_gather(bytes_of(values), reinterpret_cast<std::byte*>(all.data()), sizes.data());
  return all;
}

// Fails on all ranks alike.
void check_shapes(Communicator& ranks, const char* what, uint64_t count, uint64_t value_bytes) {
  const uint64_t shape[2] = {count, value_bytes};
  const std::vector<uint64_t> all = gather_values(ranks, shape, 2);
  const auto text = [&](int r) {
    const size_t i = static_cast<size_t>(r) * 2;
    return "rank " + std::to_string(r) + " has " + std::to_string(all[i]) + " values of " +
           std::to_string(8 * all[i + 1]) + " bits";
  };
  for (int r = 1; r < ranks.size(); ++r) {
    if (std::equal(all.begin(), all.begin() + 2, all.begin() + 2 * r)) continue;
    throw hotrow::AgreedError(Code::kInvalidArgument, "all_reduce of \"" + std::string(what) +
                                                          "\": " + text(0) + ", " + text(r) +
                                                          "; all must have the same");
  }
}

template <typename Value>
int all_reduce(hr_ranks* ranks, const char* what, Value* values, size_t count) {
  return guarded([&] {
    ranks->collectives->run(what, [=](Communicator& own) {
      check_shapes(own, what, count, sizeof(Value));
      own.all_reduce(values, count);
    });
  });
}

}  // namespace

int hr_ranks_create_mpi(const char* name, const char* library, double timeout_seconds) {
  return guarded([&] {
    hotrow::add_collectives(
        name, std::make_shared<Collectives>(hotrow::mpi_communicator(library, timeout_seconds)));
  });
}

int hr_ranks_create_threads(const char* const* names, int count, double timeout_seconds) {
  return guarded([&] {
    int r = 0;
    try {
      for (auto& communicator : hotrow::thread_communicators(count, timeout_seconds)) {
        hotrow::add_collectives(names[r], std::make_shared<Collectives>(std::move(communicator)));
        ++r;
      }
    } catch (...) {
      while (r > 0) hotrow::drop_collectives(names[--r]);
      throw;
    }
  });
}

int hr_ranks_drop(const char* name) {
  return guarded([&] { hotrow::drop_collectives(name); });
}

int hr_ranks_open(const char* name, hr_ranks** ranks) {
  return guarded([&] { *ranks = new hr_ranks{hotrow::find_collectives(name)}; });
}

void hr_ranks_release(hr_ranks* ranks) { delete ranks; }
int hr_ranks_rank(const hr_ranks* ranks) { return ranks->collectives->rank(); }
int hr_ranks_size(const hr_ranks* ranks) { return ranks->collectives->size(); }

int hr_ranks_set_device(hr_ranks* ranks, int wanted, const char* nccl_library,
                        double timeout_seconds) {
  return guarded([&] {
    if (wanted < HR_DEVICE_AUTO || wanted > HR_DEVICE_HOST) {
      hotrow::fail(Code::kInvalidArgument, "device collectives %d; 0 to 2", wanted);
    }
    hotrow::DeviceRanks& device = ranks->collectives->device();
    device.wanted = static_cast<hotrow::DeviceCollectives>(wanted);
    device.nccl_library = nccl_library;
    device.timeout_seconds = timeout_seconds;
  });
}

const char* hr_ranks_device(const hr_ranks* ranks) { return ranks->collectives->device().chosen; }

void hr_gathered_release(hr_gathered* gathered) { delete gathered; }

const void* hr_gathered_data(const hr_gathered* gathered, int rank, size_t* bytes) {
  const size_t r = static_cast<size_t>(rank);
  *bytes = gathered->begin[r + 1] - gathered->begin[r];
  return gathered->data.data() + gathered->begin[r];
}

int hr_ranks_all_gather(hr_ranks* ranks, const char* what, const void* data, size_t bytes,
                        hr_gathered** gathered) {
  return guarded([&] {
    auto result = std::make_unique<hr_gathered>();
    ranks->collectives->run(what, [&](Communicator& own) {
      const std::vector<size_t> sizes = gather_values(own, &bytes, 1);
      result->begin.assign(sizes.size() + 1, 0);
      std::partial_sum(sizes.begin(), sizes.end(), result->begin.begin() + 1);
      result->data.resize(result->begin.back());
      own.all_gather(bytes_of(data), result->data.data(), sizes.data());
    });
    *gathered = result.release();
  });
}

int hr_ranks_broadcast(hr_ranks* ranks, const char* what, const void* data, size_t bytes,
                       hr_gathered** gathered) {
  return guarded([&] {
    auto result = std::make_unique<hr_gathered>();
    ranks->collectives->run(what, [&](Communicator& own) {
      size_t size = bytes;
      own.broadcast(reinterpret_cast<std::byte*>(&size), sizeof(size), 0);
      result->begin = {0, size};
      result->data.resize(size);
      if (own.rank() == 0) std::copy_n(bytes_of(data), size, result->data.data());
      own.broadcast(result->data.data(), size, 0);
    });
    *gathered = result.release();
  });
}

int hr_ranks_all_reduce_floats(hr_ranks* ranks, const char* what, float* values, size_t count) {
  return all_reduce(ranks, what, values, count);
}

int hr_ranks_all_reduce_doubles(hr_ranks* ranks, const char* what, double* values, size_t count) {
  return all_reduce(ranks, what, values, count);
}

int hr_ranks_barrier(hr_ranks* ranks, const char* what) {
  return guarded([&] { ranks->collectives->run(what, [](Communicator& own) { own.barrier(); }); });
}

int hr_ranks_fail(hr_ranks* ranks, int code, const char* message) {
  return guarded([&] { ranks->collectives->fail(static_cast<Code>(code), message); });
}

int hr_ranks_sum_start(hr_ranks* ranks, const char* what, const float* const* values,
                       const size_t* counts, size_t arrays, int64_t* ticket) {
  return guarded([&] {
    std::vector<hotrow::SumPart> parts(arrays);
    for (size_t i = 0; i < arrays; ++i) parts[i] = {values[i], counts[i]};
    *ticket = hotrow::start_sum(ranks->collectives, what, parts);
  });
}

int hr_ranks_sum_finish(int64_t ticket, size_t count, void* context,
                        void (*done)(void* context, int code, const char* message, hr_sums* sums)) {
  return guarded([&] {
    hotrow::finish_sum(ticket, count, [=](std::exception_ptr error, auto values) {
      const int code = guarded([&] {
        if (error != nullptr) std::rethrow_exception(error);
      });
      if (code == 0) {
        done(context, 0, "", new hr_sums{std::move(values)});
      } else {
        done(context, code, hotrow::capi::last_error().c_str(), nullptr);
      }
    });
  });
}

const float* hr_sums_values(const hr_sums* sums) { return sums->values.get(); }
void hr_sums_release(hr_sums* sums) { delete sums; }

int hr_ranks_count(hr_ranks* ranks, const char* stage, uint64_t bytes_sent, uint64_t bytes_received,
                   uint64_t nanoseconds) {
  return guarded(
      [&] { ranks->collectives->count(stage, bytes_sent, bytes_received, nanoseconds); });
}

int hr_ranks_counts(const hr_ranks* ranks, void* context,
                    void (*visit)(void* context, const char* stage, const hr_stage_count* count)) {
  return guarded([&] {
    for (const hotrow::StageCount& c : ranks->collectives->counts()) {
      const hr_stage_count count = {c.calls, c.bytes_sent, c.bytes_received, c.nanoseconds};
      visit(context, c.stage.c_str(), &count);
    }
  });
}
