// Rounds of every collective with sizes that vary and may be 0, the results checked.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/rank_sums.h"

namespace hotrow {

// What rank r sends to rank `to` in a round: `size` bytes that no other pair sends.
inline std::vector<std::byte> said(int round, int r, int to, size_t size) {
  std::vector<std::byte> bytes(size);
  std::mt19937 random(static_cast<uint32_t>(round * 10007 + r * 101 + to));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

inline size_t size_said(int round, int r, int to) {
  std::mt19937 random(static_cast<uint32_t>(round * 7919 + r * 31 + to * 3 + 1));
  const uint32_t kind = random() % 4;
  if (kind == 0) return 0;
  return kind == 1 ? random() % 9 : random() % 3000;
}

// Values of wide range, so that sums in another order have other bits.
template <typename Value>
std::vector<Value> values_of(int round, int r, size_t count) {
  std::vector<Value> values(count);
  std::mt19937 random(static_cast<uint32_t>(round * 104729 + r));
  std::normal_distribution<double> normal;
  for (Value& v : values) v = static_cast<Value>(normal(random) * std::exp(4 * normal(random)));
  return values;
}

template <typename Value>
std::vector<Value> sum_of_ranks(int round, int ranks, size_t count) {
  std::vector<std::vector<Value>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(values_of<Value>(round, r, count));
  std::vector<Value> sums(count);
  sum_in_rank_order(sums.data(), count, ranks,
                    [&](int r) { return all[static_cast<size_t>(r)].data(); });
  return sums;
}

template <typename Value>
bool same_bits(const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Value)) == 0);
}

inline void append(std::vector<std::byte>& to, const std::vector<std::byte>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

template <typename Value>
bool right_all_reduce(Communicator& ranks, int round) {
  const size_t count = size_said(round, 78, 79);
  std::vector<Value> values = values_of<Value>(round, ranks.rank(), count);
  ranks.all_reduce(values.data(), count);
  return same_bits(values, sum_of_ranks<Value>(round, ranks.size(), count));
}

// The error of a round on this rank, or "".
inline std::string wrong_in_round(Communicator& ranks, int round) {
  const int me = ranks.rank(), n = ranks.size();
  ranks.begin("round " + std::to_string(round));
  std::vector<size_t> to, from, gathered, counts;
  std::vector<std::byte> send, wanted, wanted_gathered;
  size_t all_counts = 0, counts_before = 0;
  for (int r = 0; r < n; ++r) {
    to.push_back(size_said(round, me, r));
    from.push_back(size_said(round, r, me));
    gathered.push_back(size_said(round, r, 77));
    append(send, said(round, me, r, to.back()));
    append(wanted, said(round, r, me, from.back()));
    append(wanted_gathered, said(round, r, 77, gathered.back()));
    counts.push_back(size_said(round, 76, r));
    if (r < me) counts_before += counts.back();
    all_counts += counts.back();
  }
  std::vector<std::byte> got(wanted.size());
  ranks.all_to_all(send.data(), to.data(), got.data(), from.data());
  if (got != wanted) return "all_to_all";

  const size_t mine = static_cast<size_t>(me);
  const std::vector<std::byte> own = said(round, me, 77, gathered[mine]);
  std::vector<std::byte> got_gathered(wanted_gathered.size());
  ranks.all_gather(own.data(), got_gathered.data(), gathered.data());
  if (got_gathered != wanted_gathered) return "all_gather";

  const std::vector<float> values = values_of<float>(round, me, all_counts);
  std::vector<float> part(counts[mine]);
  ranks.reduce_scatter(values.data(), part.data(), counts.data());
  const std::vector<float> sums = sum_of_ranks<float>(round, n, all_counts);
  const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(counts_before);
  const auto end = begin + static_cast<std::ptrdiff_t>(part.size());
  if (!same_bits(part, std::vector<float>(begin, end))) return "reduce_scatter";

  if (!right_all_reduce<float>(ranks, round)) return "all_reduce of float";
  if (!right_all_reduce<double>(ranks, round)) return "all_reduce of double";

  const int root = round % n;
  const std::vector<std::byte> news = said(round, root, 80, size_said(round, root, 80));
  std::vector<std::byte> received = me == root ? news : std::vector<std::byte>(news.size());
  ranks.broadcast(received.data(), received.size(), root);
  if (received != news) return "broadcast";
  ranks.barrier();
  return "";
}

}  // namespace hotrow
