// Tables on several ranks with their device tiers on a GPU give the same results as without one,
// bit for bit. Ranks are threads with one GPU.
#include "core/gpu/step/rank_step.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/ranks/step.h"
#include "core/table/snapshot.h"
#include "tests/gpu/ranked_sides.h"

namespace hotrow {
namespace {

void train(const std::vector<Split>& splits, int ranks, int steps,
           DeviceCollectives wanted = DeviceCollectives::kAuto, float clip = 0.0f) {
  CAPTURE(ranks);
  Steps all(splits, ranks, wanted);
  all.spoil_gradients();
  std::vector<float> rates(splits.size());
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    for (float& rate : rates) rate = 0.01f + 0.002f * static_cast<float>(step % 3);
    const size_t samples = step % 5 == 4 ? 2 : 80;
    switch (step % 4) {
      case 0:
      case 1:
        all.run(samples, [&](auto& side, auto& next) {
          BackwardOptions options = now(side.forward(true));
          options.learning_rates = rates.data();
          options.global_clip_norm = clip;
          side.backward(options);
          next.forward(false);
        });
        break;
      case 2:  // two passes before their backward passes
        all.run(samples, [&](auto& side, auto& next) {
          const int64_t first = side.forward(true), second = next.forward(true);
          side.backward(now(first));
          next.backward(now(second));
        });
        break;
      default:  // without a forward pass; then all rows are read in between
        all.run(
            samples,
            [&](auto& side, auto& next) {
              side.backward(now(0));
              next.backward(now(next.forward(true)));
            },
            false);
    }
    if (step % 3 == 2) check_ranks(all.ranked);
  }
  check_ranks(all.ranked);
}

constexpr OptimizerKind kAllKinds[] = {OptimizerKind::kSgd,     OptimizerKind::kMomentum,
                                       OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
                                       OptimizerKind::kAdam,    OptimizerKind::kFtrl};

std::vector<Split> several(size_t cache_rows) {
  std::vector<Split> splits(4);
  for (size_t t = 0; t < splits.size(); ++t) {
    Split& split = splits[t];
    split.kind.width = std::vector<size_t>{16, 3, 33, 8}[t];
    split.kind.optimizer = kAllKinds[(t * 4 + cache_rows) % 6];
    split.kind.cache_rows = cache_rows;
    split.kind.policy = t < 2 ? CachePolicy::kLfu : CachePolicy::kLru;
    split.kind.type = t == 2 ? RowType::kBfloat16 : RowType::kFloat32;
    split.kind.admission = t == 1;
    split.kind.expiry = t == 3;
    split.scheme = t == 0 ? Scheme::kTable : Scheme::kRow;
    split.hashed = t == 2;
  }
  return splits;
}

constexpr Scheme kSchemes[] = {Scheme::kRow, Scheme::kTable, Scheme::kColumn, Scheme::kReplicated,
                               Scheme::kRowBroadcast};

// Three tables of one scheme, of different types, widths, optimizers, admission and expiry.
std::vector<Split> split_by(Scheme scheme, size_t cache_rows) {
  std::vector<Split> splits = several(cache_rows);
  splits.erase(splits.begin());
  for (Split& split : splits) split.scheme = scheme;
  return splits;
}

// A table of each scheme in one layer.
std::vector<Split> mixed(size_t cache_rows) {
  std::vector<Split> splits(std::size(kSchemes));
  for (size_t t = 0; t < splits.size(); ++t) {
    splits[t].kind.width = std::vector<size_t>{4, 9, 7, 12, 5}[t];
    splits[t].kind.cache_rows = cache_rows;
    splits[t].kind.optimizer = t % 2 == 0 ? OptimizerKind::kAdam : OptimizerKind::kAdagrad;
    splits[t].scheme = kSchemes[(t + 2) % std::size(kSchemes)];
    splits[t].hashed = t == 4;
  }
  return splits;
}

}  // namespace

TEST_CASE("device ranks: every scheme gives the rows of ranks in memory") {
  for (const Scheme scheme : {Scheme::kColumn, Scheme::kReplicated, Scheme::kRowBroadcast}) {
    CAPTURE(scheme_name(scheme));
    for (int ranks = 1; ranks <= 3; ++ranks) {
      for (const size_t rows : {size_t{1}, size_t{301}, size_t{6002}}) {
        if (kLess && rows != (ranks == 2 ? 1 : 301)) continue;
        CAPTURE(rows);
        train(split_by(scheme, rows), ranks, kLess ? 6 : 14);
      }
    }
  }
}

TEST_CASE("device ranks: tables of all schemes in one layer") {
  for (int ranks = 1; ranks <= 3; ++ranks) train(mixed(200), ranks, kLess ? 6 : 14);
  train(mixed(200), 3, 4, DeviceCollectives::kHost);
  train(mixed(200), 2, 6, DeviceCollectives::kAuto, 0.05f);
}

TEST_CASE("device ranks: columns of rows that are measured together") {
  std::vector<Split> splits(3);
  for (size_t t = 0; t < splits.size(); ++t) {
    splits[t].scheme = Scheme::kColumn;
    splits[t].kind.width = std::vector<size_t>{7, 150, 5}[t];
    splits[t].kind.cache_rows = 300;
    splits[t].kind.optimizer = t < 2 ? OptimizerKind::kRowwiseAdagrad : OptimizerKind::kAdam;
    splits[t].kind.clip_row_norm = t == 0 ? 0.0f : 0.3f;
    splits[t].kind.l2 = t == 1 ? 0.02f : 0.0f;
    splits[t].kind.type = t == 1 ? RowType::kFloat16 : RowType::kFloat32;
    splits[t].kind.admission = t == 0;
  }
  for (int ranks = 1; ranks <= 3; ++ranks) train(splits, ranks, kLess ? 4 : 12);
  train(splits, 2, 4, DeviceCollectives::kAuto, 0.05f);
  train(splits, 3, 4, DeviceCollectives::kHost);
}

TEST_CASE("device ranks: every optimizer and size of cache gives the rows of ranks in memory") {
  for (const OptimizerKind optimizer : kAllKinds) {
    for (const size_t rows : {size_t{1}, size_t{200}, size_t{6000}}) {
      if (kLess && rows != (optimizer == OptimizerKind::kAdam ? 1 : 200)) continue;
      CAPTURE(static_cast<int>(optimizer));
      CAPTURE(rows);
      Split split;
      split.kind.optimizer = optimizer;
      split.kind.cache_rows = rows;
      train({split}, 2, kLess ? 5 : 10);
    }
  }
}

TEST_CASE("device ranks: several tables of different widths, types, owners and optimizers") {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    for (const size_t rows : {size_t{1}, size_t{300}, size_t{6000}}) {
      if (kLess && rows != (ranks == 2 ? 1 : 300)) continue;
      CAPTURE(rows);
      train(several(rows), ranks, kLess ? 6 : 14);
    }
  }
}

TEST_CASE("device ranks: by way of the host's memory come the same rows") {
  train(several(300), 3, 8, DeviceCollectives::kHost);
}

TEST_CASE("device ranks: gradients that wait are committed, clipped by the norm of all") {
  std::vector<Split> splits = several(100);
  for (const Split& split : mixed(100)) splits.push_back(split);
  Steps all(splits, 2);
  const Executor executor;
  const Stream streams[2];
  std::vector<float> commit_token(GradientPasses::kSlots, 0.0f);
  for (int step = 0; step < 6; ++step) {
    CAPTURE(step);
    const float clip = step % 2 == 0 ? 0.05f : 0.0f;
    // Two passes a step; on the device and in memory they wait in the same slots.
    const auto end = [&](size_t r, auto& side, auto& next) {
      constexpr bool on_host = std::is_same_v<std::decay_t<decltype(side)>, HostSide>;
      const std::vector<Table*>& tables = (on_host ? all.ranked.plain : all.ranked.tiered)[r].all;
      std::vector<float> own = commit_token;
      BackwardOptions options;
      options.what = Backward::kAccumulate;
      for (auto* one : {&side, &next}) {
        options.slot = tables[0]->passes.next_slot();
        options.ticket = one->forward(true);
        one->backward(options);
        own[options.slot] = GradientPasses::kUnit;
      }
      if (on_host) {
        commit(tables, own.data(), nullptr, clip, executor);
      } else {
        device_commit(tables, own.data(), nullptr, clip, executor, streams[r].get());
      }
    };
    all.run_by_rank(60, end);
    check_ranks(all.ranked);
  }
}

TEST_CASE("device ranks: the norm of all ranks' gradients clips as in memory") {
  train(several(300), 2, 8, DeviceCollectives::kAuto, 0.05f);
}

TEST_CASE("device ranks: a snapshot has the rows of its moment while ranks train on") {
  std::vector<Split> splits(2);
  splits[0].kind.cache_rows = splits[1].kind.cache_rows = 150;
  splits[1].kind.optimizer = OptimizerKind::kAdam;
  Steps all(splits, 2);
  for (int round = 0; round < 4; ++round) {
    CAPTURE(round);
    std::vector<std::vector<Rows>> read(2, std::vector<Rows>(2));  // by side and rank
    all.run_by_rank(70, [&](size_t r, auto& side, auto& next) {
      constexpr bool on_host = std::is_same_v<std::decay_t<decltype(side)>, HostSide>;
      Table& table = *(on_host ? all.ranked.plain : all.ranked.tiered)[r].all[1];
      side.backward(now(side.forward(true)));
      const int64_t ticket = next.forward(true);
      auto snapshot = table.open_snapshot(round > 0 ? Since::kCheckpoint : Since::kAll);
      next.backward(now(ticket));
      Rows rows = read_all(table, *snapshot, 50);
      side.backward(now(side.forward(true)));
      const Rows rest = read_all(table, *snapshot, 50);
      rows.insert(rows.end(), rest.begin(), rest.end());
      snapshot->close(true);
      read[on_host ? 0 : 1][r] = sorted(rows);
    });
    CHECK(!read[0][0].empty());
    CHECK((read[0] == read[1]));
    check_ranks(all.ranked);
  }
}

TEST_CASE("device ranks: prefetched batches change nothing but where rows are") {
  std::vector<Split> splits = several(200);
  for (const Split& split : mixed(200)) splits.push_back(split);
  Ranked ranked(splits, 2, DeviceCollectives::kAuto);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int r = 0; r < 2; ++r) streams.push_back(std::make_unique<Stream>());
  for (int round = 0; round < 3; ++round) {
    const auto outcomes = on_ranks(2, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      Draw draw(static_cast<uint64_t>(50 * round + rank));
      std::vector<std::unique_ptr<Batch>> batches;
      for (int i = 0; i < 4; ++i) {
        batches.push_back(std::make_unique<Batch>(ranked.plain[r], ranked.tiered[r], draw, 60,
                                                  Executor(), *streams[r]));
      }
      // Two passes before their backward passes, in one round.
      const size_t together = round == 1 ? 2 : 1;
      const auto train = [&](auto&& side_of, size_t first) {
        std::vector<int64_t> tickets;
        for (size_t i = first; i < first + together; ++i) {
          tickets.push_back(side_of(i).forward(true));
        }
        for (size_t i = 0; i < together; ++i) side_of(first + i).backward(now(tickets[i]));
      };
      for (size_t i = 0; i < batches.size(); i += together) {
        train([&](size_t b) -> HostSide& { return batches[b]->host; }, i);
      }
      const auto prefetch = [&](size_t i) {
        if (i < batches.size()) rank_prefetch(batches[i]->device.call_in_memory());
      };
      size_t next = 0;
      while (next < together) prefetch(next++);
      for (size_t i = 0; i < batches.size(); i += together) {
        while (next < i + 2 * together) prefetch(next++);
        train([&](size_t b) -> DeviceSide& { return batches[b]->device; }, i);
      }
      for (size_t i = 0; i < batches.size(); ++i) {
        if (!same_bits(batches[i]->host.outputs(), batches[i]->device.outputs())) {
          fail(Code::kInternal, "other values in batch %zu", i);
        }
      }
    });
    for (const Outcome& outcome : outcomes) REQUIRE(outcome.message == "");
    check_ranks(ranked);
  }
  // The keys of a batch are sent once.
  for (const auto& own : ranked.devices) {
    for (const StageCount& count : own->counts()) {
      if (count.stage == "keys" || count.stage == "sizes") CHECK(count.calls == 3 * 4);
    }
  }
  for (size_t t = 0; t < splits.size(); ++t) {
    CAPTURE(t);
    uint64_t ahead = 0;
    for (const Tables& part : ranked.tiered) ahead += part.all[t]->statistics().cache.prefetched;
    // Those that are admitted are few: all have slots.
    if (!splits[t].kind.admission) CHECK(ahead > 0);
  }
}

}  // namespace hotrow
