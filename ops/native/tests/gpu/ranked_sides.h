// The same tables over several ranks, threads with one GPU: in memory and with their device tiers
// on it.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/comm/collectives.h"
#include "tests/gpu/layer_sides.h"
#include "tests/rank_threads.h"

namespace hotrow {

// A table of a case, and how it is split.
struct Split {
  Kind kind;
  Scheme scheme = Scheme::kRow;
  bool hashed = false;
};

using Group = std::vector<std::shared_ptr<Collectives>>;

inline Group group_of(int count, DeviceCollectives wanted = DeviceCollectives::kAuto) {
  Group group;
  for (auto& communicator : thread_communicators(count, 60.0)) {
    group.push_back(std::make_shared<Collectives>(std::move(communicator)));
    group.back()->device().wanted = wanted;
  }
  return group;
}

// A rank's part of the tables.
inline Tables part_of(const std::vector<Split>& splits, const Group& group, size_t rank,
                      bool on_device) {
  Tables tables({}, on_device);
  for (size_t t = 0; t < splits.size(); ++t) {
    TableOptions options = options_of(splits[t].kind, on_device);
    Sharding sharding;
    sharding.ranks = group[rank];
    sharding.scheme = splits[t].scheme;
    sharding.owner = static_cast<int32_t>(t + 1) % group[rank]->size();
    sharding.hashed = splits[t].hashed;
    sharding.width = options.width;
    options.width = sharding.columns(group[rank]->rank());
    options.init.first_column = sharding.first_column(group[rank]->rank());
    tables.owned.push_back(
        std::make_unique<Table>("t" + std::to_string(t), options, 1, false, sharding));
    tables.all.push_back(tables.owned.back().get());
  }
  return tables;
}

// The tables of all ranks, without a device tier and with one.
struct Ranked {
  Ranked(const std::vector<Split>& splits, int count, DeviceCollectives wanted)
      : hosts(group_of(count)), devices(group_of(count, wanted)) {
    for (size_t r = 0; r < hosts.size(); ++r) {
      plain.push_back(part_of(splits, hosts, r, false));
      tiered.push_back(part_of(splits, devices, r, true));
    }
  }
  size_t size() const { return hosts.size(); }

  Group hosts, devices;
  std::vector<Tables> plain, tiered;  // by rank
};

// What a rank draws. A feature has the same combiner on all ranks, so these are drawn apart.
struct Draw {
  explicit Draw(uint64_t seed) : random(seed), combiners(5) {}
  std::mt19937_64 random, combiners;
  bool spoils = false;  // makes a few gradients NaN or infinite
};

inline std::vector<Input> draw_inputs(const Tables& plain, Draw& draw, size_t samples) {
  std::vector<Input> inputs = inputs_of(draw.random, plain, samples, 3000, &draw.combiners);
  return draw.spoils ? spoiled(draw.random, std::move(inputs)) : inputs;
}

// A rank's batch, on both sides; one is the input of the other's.
struct Batch {
  Batch(const Tables& plain, const Tables& tiered, Draw& draw, size_t samples,
        const Executor& executor, const Stream& stream)
      : inputs(draw_inputs(plain, draw, samples)),
        host(plain, inputs, executor),
        device(tiered, inputs, executor, stream) {}
  std::vector<Input> inputs;
  HostSide host;
  DeviceSide device;
};

inline void check_ranks(const Ranked& ranked) {
  for (size_t r = 0; r < ranked.size(); ++r) {
    CAPTURE(r);
    check_same(ranked.plain[r], ranked.tiered[r]);
  }
}

// Calls act(side, next), a rank's work on two batches, for both sides of all ranks; then compares
// the values of the first batch.
class Steps {
 public:
  Steps(const std::vector<Split>& splits, int ranks,
        DeviceCollectives wanted = DeviceCollectives::kAuto)
      : ranked(splits, ranks, wanted), streams_(static_cast<size_t>(ranks) * 2) {
    for (auto& stream : streams_) stream = std::make_unique<Stream>();
    for (int r = 0; r < ranks; ++r) draws_.emplace_back(static_cast<uint64_t>(17 + r));
  }

  void spoil_gradients() {
    for (Draw& draw : draws_) draw.spoils = true;
  }
  template <typename Act>
  void run(size_t samples, Act&& act, bool compare = true) {
    run_by_rank(samples, [&](size_t, auto& side, auto& next) { act(side, next); }, compare);
  }
  template <typename Act>
  void run_by_rank(size_t samples, Act&& act, bool compare = true) {
    std::vector<std::unique_ptr<Batch>> first, second;
    for (size_t r = 0; r < ranked.size(); ++r) {
      // Now and then a rank has no samples.
      const size_t own = draws_[r].random() % 7 == 0 ? 0 : samples + draws_[r].random() % 50;
      const auto& stream = [&]() -> const Stream& {
        return *streams_[2 * r + draws_[r].random() % 2];
      };
      first.push_back(std::make_unique<Batch>(ranked.plain[r], ranked.tiered[r], draws_[r], own,
                                              Executor(), stream()));
      second.push_back(std::make_unique<Batch>(ranked.plain[r], ranked.tiered[r], draws_[r], 30,
                                               Executor(), stream()));
    }
    const auto on_hosts = on_ranks(static_cast<int>(ranked.size()), [&](int r) {
      const auto i = static_cast<size_t>(r);
      act(i, first[i]->host, second[i]->host);
    });
    const auto on_devices = on_ranks(static_cast<int>(ranked.size()), [&](int r) {
      const auto i = static_cast<size_t>(r);
      act(i, first[i]->device, second[i]->device);
    });
    for (size_t r = 0; r < ranked.size(); ++r) {
      CAPTURE(r);
      REQUIRE(on_hosts[r].message == "");
      REQUIRE(on_devices[r].message == "");
      if (!compare) continue;
      REQUIRE(same_bits(first[r]->host.outputs(), first[r]->device.outputs()));
      REQUIRE(first[r]->host.missing == first[r]->device.missing);
    }
  }

  Ranked ranked;

 private:
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Draw> draws_;
};

}  // namespace hotrow
