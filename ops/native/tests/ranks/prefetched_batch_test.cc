// Batches that ranks prefetch unevenly: all ranks get the error, no rank waits for long, and
// nothing crashes.
#include "core/ranks/prefetched_batch.h"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <random>

#include "core/comm/collectives.h"
#include "core/ranks/step.h"
#include "tests/error_code.h"
#include "tests/rank_threads.h"

namespace hotrow {
namespace {

constexpr double kLong = 60;
constexpr Scheme kSchemes[] = {Scheme::kRow, Scheme::kColumn, Scheme::kRowBroadcast, Scheme::kTable,
                               Scheme::kReplicated};
constexpr size_t kWidths[] = {4, 6};

// Two tables, a feature of each: one key a sample; and pooled, weighted ones.
class Layer {
 public:
  Layer(std::shared_ptr<Collectives> ranks, Scheme scheme) : rank_(ranks->rank()) {
    for (size_t t = 0; t < 2; ++t) {
      TableOptions options;
      Sharding sharding;
      sharding.ranks = ranks;
      sharding.scheme = scheme;
      sharding.width = kWidths[t];
      options.width = sharding.columns(rank_);
      options.cache.rows = t == 0 ? 600 : 0;
      options.init.first_column = sharding.first_column(rank_);
      tables_.push_back(std::make_shared<Table>(t == 0 ? "a" : "b", options, 1, false, sharding));
    }
  }

  void prefetch(int number) const {
    Batch batch(rank_, number);
    rank_prefetch(call(batch), {tables_[1]});
  }
  // Returns the ticket.
  int64_t look_up(int number, bool insert) const {
    Batch batch(rank_, number);
    std::vector<float> first(batch.samples * kWidths[0]), second(batch.samples * kWidths[1]);
    return forward(call(batch), insert, {first.data(), second.data()}, nullptr);
  }
  void update(int number, int64_t ticket) const {
    Batch batch(rank_, number);
    const std::vector<float> gradients(batch.samples * kWidths[1], 0.5f);
    BackwardOptions options;
    options.what = Backward::kUpdate;
    options.ticket = ticket;
    backward(call(batch), {gradients.data(), gradients.data()}, options);
  }
  void train(int number) const { update(number, look_up(number, true)); }
  // Trains with the first table alone.
  void train_part(int number) const {
    Batch batch(rank_, number);
    LayerCall part = call(batch);
    part.tables.pop_back();
    part.features.pop_back();
    part.table_of.pop_back();
    std::vector<float> rows(batch.samples * kWidths[0]);
    forward(part, true, {rows.data()}, nullptr);
  }

 private:
  // A rank's part of batch `number`: always the same.
  struct Batch {
    Batch(int rank, int number) {
      std::mt19937_64 random(static_cast<uint64_t>(number * 10 + rank));
      samples = random() % 7;
      for (size_t b = 0; b < samples; ++b) {
        keys.push_back(static_cast<int64_t>(random() % 40));
        for (size_t i = random() % 3; i > 0; --i) {
          pooled.push_back(static_cast<int64_t>(random() % 40));
          weights.push_back(static_cast<float>(random() % 8) / 4.0f);
        }
        row_splits.push_back(static_cast<int64_t>(pooled.size()));
      }
    }
    size_t samples;
    std::vector<int64_t> keys, pooled, row_splits{0};
    std::vector<float> weights;
  };

  LayerCall call(const Batch& batch) const {
    LayerCall call;
    for (const auto& table : tables_) call.tables.push_back(table.get());
    call.table_of = {0, 1};
    call.features.resize(2);
    Feature& one = call.features[0];
    one.name = "one";
    one.keys = batch.keys.data();
    one.segments.keys = one.segments.samples = batch.samples;
    Feature& some = call.features[1];
    some.name = "some";
    some.keys = batch.pooled.data();
    some.segments.combiner = Combiner::kSum;
    some.segments.keys = batch.pooled.size();
    some.segments.samples = batch.samples;
    some.segments.row_splits = batch.row_splits.data();
    some.segments.weights = batch.weights.data();
    return call;
  }

  int rank_;
  std::vector<std::shared_ptr<Table>> tables_;
};

// Runs body(layer, ranks) on each rank; destroys the rank's layer and collectives when it ends or
// throws.
template <typename Body>
std::vector<Outcome> with_layers(int ranks, Scheme scheme, double seconds, Body&& body) {
  auto all = thread_communicators(ranks, seconds);
  return on_ranks(ranks, [&](int r) {
    auto own = std::make_shared<Collectives>(std::move(all[static_cast<size_t>(r)]));
    const Layer layer(own, scheme);
    body(layer, *own);
  });
}

void sum_dense(Collectives& ranks) {
  float values[3] = {1, 2, 3};
  ranks.run("dense gradients", [&](Communicator& own) { own.all_reduce(values, 3); });
}

enum class Does { kPrefetch, kTrain, kLookUp, kEvaluate, kSum, kThrow };
struct Action {
  Does does;
  int batch;
  bool operator==(const Action& other) const { return does == other.does && batch == other.batch; }
};
using Program = std::vector<Action>;

constexpr int kSteps = 5;

// Two batches ahead; sums of dense gradients after each step.
Program even_program() {
  Program program{{Does::kPrefetch, 0}, {Does::kPrefetch, 1}};
  for (int step = 0; step < kSteps; ++step) {
    program.push_back({Does::kTrain, step});
    program.push_back({Does::kSum, 0});
    if (step + 2 < kSteps) program.push_back({Does::kPrefetch, step + 2});
  }
  return program;
}

Program changed(Program program, std::mt19937_64& random) {
  for (uint64_t changes = 1 + random() % 3; changes > 0 && !program.empty(); --changes) {
    const auto at = program.begin() + static_cast<ptrdiff_t>(random() % program.size());
    const int batch = static_cast<int>(random() % kSteps);
    switch (random() % 6) {
      case 0:
        program.erase(at);
        break;
      case 1:
        program.insert(at, {Does::kPrefetch, batch});
        break;
      case 2:
        std::swap(*at, program[random() % program.size()]);
        break;
      case 3:
        program.erase(at, program.end());
        break;
      case 4:
        program.insert(at, {static_cast<Does>(random() % 5), batch});
        break;
      default:
        program.insert(at, {Does::kThrow, 0});
    }
  }
  return program;
}

void run(const Program& program, const Layer& layer, Collectives& ranks, bool goes_on) {
  for (const Action& action : program) {
    const Outcome outcome = outcome_of([&] {
      switch (action.does) {
        case Does::kPrefetch:
          return layer.prefetch(action.batch);
        case Does::kTrain:
          return layer.train(action.batch);
        case Does::kLookUp:
          return static_cast<void>(layer.look_up(action.batch, true));
        case Does::kEvaluate:
          return static_cast<void>(layer.look_up(action.batch, false));
        case Does::kSum:
          return sum_dense(ranks);
        case Does::kThrow:
          ranks.fail(Code::kDataLoss, "a file is damaged");
          fail(Code::kDataLoss, "a file is damaged");
      }
    });
    if (outcome.code != Code::kOk && !goes_on) throw Error(outcome.code, outcome.message);
  }
}

}  // namespace

TEST_CASE(
    "prefetched batch: a rank that prefetches one more than another ends both, with both calls") {
  for (Scheme scheme : kSchemes) {
    const auto outcomes = with_layers(2, scheme, kLong, [](const Layer& layer, Collectives& ranks) {
      layer.prefetch(0);
      if (ranks.rank() == 0) layer.prefetch(1);
      layer.train(0);
      layer.train(1);
    });
    for (const Outcome& outcome : outcomes) {
      CHECK(outcome.code == Code::kInternal);
      for (const char* part : {"prefetch of a", "gradients of a", "in the same order"}) {
        CHECK(outcome.message.find(part) != outcome.message.npos);
      }
    }
  }
}

TEST_CASE("prefetched batch: keys prefetched on one rank while the others sum dense gradients") {
  for (int more = 0; more < 3; ++more) {
    const auto outcomes =
        with_layers(3, Scheme::kRow, kLong, [&](const Layer& layer, Collectives& ranks) {
          layer.prefetch(0);
          if (ranks.rank() == more) layer.prefetch(1);
          layer.look_up(0, true);
          sum_dense(ranks);
        });
    for (const Outcome& outcome : outcomes) {
      CHECK(outcome.code == Code::kInternal);
      CHECK(outcome.message.find("all_to_all of \"prefetch of a\"") != outcome.message.npos);
      CHECK(outcome.message.find("all_reduce of \"dense gradients\"") != outcome.message.npos);
    }
  }
}

TEST_CASE("prefetched batch: another batch than that one fails without a wait for the others") {
  std::promise<void> failed;
  const auto outcomes =
      with_layers(2, Scheme::kRow, kLong, [&](const Layer& layer, Collectives& ranks) {
        layer.prefetch(0);
        if (ranks.rank() == 0) layer.prefetch(1);  // its keys are in flight when it fails
        const int64_t ticket = layer.look_up(0, true);
        if (ranks.rank() == 1) {
          failed.get_future().wait();
          return layer.update(0, ticket);
        }
        const Outcome outcome = outcome_of([&] { layer.look_up(2, true); });
        failed.set_value();
        throw Error(outcome.code, outcome.message);
      });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::kFailedPrecondition);
    CHECK(outcome.message.find("not the batch that was prefetched") != outcome.message.npos);
  }
}

TEST_CASE("prefetched batch: a call of other tables is not that batch") {
  const auto outcomes = with_layers(2, Scheme::kRow, kLong, [](const Layer& layer, Collectives&) {
    layer.prefetch(0);
    layer.train_part(0);
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.code == Code::kFailedPrecondition);
}

TEST_CASE(
    "prefetched batch: too many are refused on all ranks, also on those that prefetched less") {
  const auto outcomes =
      with_layers(2, Scheme::kRow, kLong, [](const Layer& layer, Collectives& ranks) {
        for (int number = 0; number < (ranks.rank() == 0 ? 100 : 2); ++number)
          layer.prefetch(number);
        layer.train(0);
      });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::kResourceExhausted);
    CHECK(outcome.message.find("64 batches are prefetched") != outcome.message.npos);
  }
}

TEST_CASE("prefetched batch: tables end with batches that were never trained") {
  for (int trained = 0; trained < 3; ++trained) {
    const auto outcomes =
        with_layers(3, Scheme::kReplicated, kLong, [&](const Layer& layer, Collectives&) {
          for (int number = 0; number < 4; ++number) layer.prefetch(number);
          for (int number = 0; number < trained; ++number) layer.train(number);
        });
    for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
  }
}

TEST_CASE("prefetched batch: another thread may prefetch while one trains") {
  with_layers(1, Scheme::kRow, kLong, [](const Layer& layer, Collectives&) {
    constexpr int kBatches = 200;
    std::atomic<int> sent{0}, trained{0};
    std::thread prefetcher([&] {
      for (int number = 0; number < kBatches; ++number) {
        while (number > trained + 20) std::this_thread::yield();
        layer.prefetch(number);
        sent = number + 1;
      }
    });
    for (; trained < kBatches; ++trained) {
      while (sent <= trained) std::this_thread::yield();
      layer.look_up(trained, false);
      layer.train(trained);
    }
    prefetcher.join();
  });
}

TEST_CASE("prefetched batch: any uneven use ends, and those who use it evenly train on") {
  const Program even = even_program();
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 3);
    const Scheme scheme = kSchemes[random() % 5];
    const bool goes_on = random() % 4 == 0;
    std::vector<Program> programs;
    for (int r = 0; r < ranks; ++r) {
      programs.push_back(random() % 2 == 0 ? even : changed(even, random));
    }
    const bool alike = std::all_of(programs.begin(), programs.end(),
                                   [&](const Program& program) { return program == even; });
    const auto outcomes =
        with_layers(ranks, scheme, kLong, [&](const Layer& layer, Collectives& own) {
          run(programs[static_cast<size_t>(own.rank())], layer, own, goes_on);
        });
    for (const Outcome& outcome : outcomes) {
      CAPTURE(outcome.message);
      CHECK(outcome.code != Code::kDeadlineExceeded);
      if (alike) CHECK(outcome.code == Code::kOk);
    }
  }
}

}  // namespace hotrow
