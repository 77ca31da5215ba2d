// Rounds of every collective in memory of the device, the results checked; communicator_rounds.h.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "core/gpu/comm/communicator.h"
#include "core/gpu/kernels/runtime.h"
#include "tests/comm/communicator_rounds.h"
#include "tests/gpu/device_array.h"

namespace hotrow {

// Device memory that a stream fills, so that the data to send are there only in stream order.
template <typename Value>
struct OnStream {
  OnStream(const std::vector<Value>& values, DeviceStream stream)
      : memory(values.size()), from(values) {
    must(cudaStreamSynchronize(kStream));  // which fills new memory
    if (!from.empty()) copy_async(memory.data(), from.data(), from.size(), stream);
  }
  DeviceArray<Value> memory;
  const std::vector<Value> from;
};

template <typename Value>
std::vector<Value> read_on(const Value* at, size_t count, DeviceStream stream) {
  std::vector<Value> values(count);
  copy_async(values.data(), at, count, stream);
  must(cudaStreamSynchronize(stream));
  return values;
}

// The error of a round on this rank, or "".
inline std::string wrong_on_device(DeviceCommunicator& ranks, int round, DeviceStream stream) {
  const int n = ranks.size();
  const size_t me = static_cast<size_t>(ranks.rank());
  ranks.begin("round " + std::to_string(round));
  std::vector<size_t> to, from, gathered, counts;
  std::vector<std::byte> send, wanted, wanted_gathered;
  size_t before = 0;
  for (int r = 0; r < n; ++r) {
    to.push_back(size_said(round, ranks.rank(), r));
    from.push_back(size_said(round, r, ranks.rank()));
    gathered.push_back(size_said(round, r, 77));
    counts.push_back(size_said(round, 76, r));
    if (r < ranks.rank()) before += counts.back();
    append(send, said(round, ranks.rank(), r, to.back()));
    append(wanted, said(round, r, ranks.rank(), from.back()));
    append(wanted_gathered, said(round, r, 77, gathered.back()));
  }
  {
    const OnStream<std::byte> sent(send, stream);
    const OnStream<std::byte> got(std::vector<std::byte>(wanted.size()), stream);
    ranks.all_to_all(sent.memory.data(), to.data(), got.memory.data(), from.data(), stream);
    // Later work on the stream may overwrite the sent data.
    must(cudaMemsetAsync(sent.memory.data(), 0, send.size(), stream));
    if (read_on(got.memory.data(), wanted.size(), stream) != wanted) return "all_to_all";
  }
  {
    const OnStream<std::byte> own(said(round, ranks.rank(), 77, gathered[me]), stream);
    const OnStream<std::byte> got(std::vector<std::byte>(wanted_gathered.size()), stream);
    ranks.all_gather(own.memory.data(), got.memory.data(), gathered.data(), stream);
    if (read_on(got.memory.data(), wanted_gathered.size(), stream) != wanted_gathered)
      return "all_gather";
  }
  {
    const size_t all = std::accumulate(counts.begin(), counts.end(), size_t{0});
    const OnStream<float> values(values_of<float>(round, ranks.rank(), all), stream);
    const OnStream<float> part{std::vector<float>(counts[me]), stream};
    ranks.reduce_scatter(values.memory.data(), part.memory.data(), counts.data(), stream);
    const std::vector<float> sums = sum_of_ranks<float>(round, n, all);
    const std::vector<float> mine(sums.begin() + static_cast<std::ptrdiff_t>(before),
                                  sums.begin() + static_cast<std::ptrdiff_t>(before + counts[me]));
    if (!same_bits(read_on(part.memory.data(), counts[me], stream), mine)) return "reduce_scatter";
    ranks.all_reduce(values.memory.data(), all, stream);
    ranks.all_reduce(values.memory.data(), 0, stream);
    if (!same_bits(read_on(values.memory.data(), all, stream), sums)) return "all_reduce";
  }
  {
    const int root = round % n;
    const std::vector<std::byte> news = said(round, root, 80, size_said(round, root, 80));
    const OnStream<std::byte> received(
        ranks.rank() == root ? news : std::vector<std::byte>(news.size()), stream);
    ranks.broadcast(received.memory.data(), news.size(), root, stream);
    if (read_on(received.memory.data(), news.size(), stream) != news) return "broadcast";
  }
  ranks.finish();
  return "";
}

}  // namespace hotrow
