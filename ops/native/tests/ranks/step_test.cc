// Tables on several ranks against the same tables on one rank; ranks are threads.
#include "core/ranks/step.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <random>
#include <thread>

#include "core/comm/thread_communicator.h"
#include "core/table/replica_cache.h"
#include "tests/error_code.h"
#include "tests/one_table.h"
#include "tests/ranks/rank_threads.h"

namespace hotrow {
namespace {

constexpr Scheme kSchemes[] = {Scheme::kRow, Scheme::kColumn, Scheme::kRowBroadcast, Scheme::kTable,
                               Scheme::kReplicated};

// A feature of a batch, with memory of its own. B samples.
struct Column {
  Combiner combiner = Combiner::kNone;
  bool ragged = false;
  bool weighted = false;
  std::vector<int64_t> keys;
  std::vector<int64_t> row_splits{0};  // (B + 1), also of one key a sample
  std::vector<float> weights;

  Feature feature() const {
    Feature f;
    f.name = "f";
    f.keys = keys.data();
    f.segments.combiner = combiner;
    f.segments.keys = keys.size();
    f.segments.samples = row_splits.size() - 1;
    if (ragged) f.segments.row_splits = row_splits.data();
    if (weighted) f.segments.weights = weights.data();
    return f;
  }
  // Samples [first, last).
  Column slice(size_t first, size_t last) const {
    Column part = *this;
    const auto begin = row_splits[first], end = row_splits[last];
    part.keys.assign(keys.begin() + begin, keys.begin() + end);
    part.weights.assign(weights.begin() + begin, weights.begin() + end);
    part.row_splits.clear();
    for (size_t b = first; b <= last; ++b) part.row_splits.push_back(row_splits[b] - begin);
    return part;
  }
};

// Skewed keys, some negative.
int64_t some_key(std::mt19937_64& random, int64_t range) {
  const int64_t key = static_cast<int64_t>(random() % static_cast<uint64_t>(range));
  return random() % 3 == 0 ? key % 5 - 2 : key;
}

Column some_column(std::mt19937_64& random, Combiner combiner, bool ragged, bool weighted,
                   size_t samples, int64_t range) {
  Column column;
  column.combiner = combiner;
  column.ragged = ragged;
  column.weighted = weighted;
  for (size_t b = 0; b < samples; ++b) {
    const size_t count = ragged ? random() % 5 : 1;
    for (size_t i = 0; i < count; ++i) {
      column.keys.push_back(some_key(random, range));
      column.weights.push_back(static_cast<float>(random() % 16) / 8.0f);
    }
    column.row_splits.push_back(static_cast<int64_t>(column.keys.size()));
  }
  return column;
}

struct Batch {
  size_t samples;
  std::vector<Column> columns;
};

// Two features share the first table.
const std::vector<size_t> kTableOf{0, 1, 0, 2, 1};
constexpr size_t kTables = 3;
constexpr size_t kWidths[kTables] = {6, 16, 5};

Batch some_batch(std::mt19937_64& random, size_t samples, int64_t range) {
  Batch batch{samples, {}};
  batch.columns.push_back(some_column(random, Combiner::kSum, true, false, samples, range));
  batch.columns.push_back(some_column(random, Combiner::kMean, true, true, samples, range));
  batch.columns.push_back(some_column(random, Combiner::kNone, false, false, samples, range));
  batch.columns.push_back(some_column(random, Combiner::kSum, false, false, samples, range));
  batch.columns.push_back(some_column(random, Combiner::kSqrtn, true, false, samples, range));
  return batch;
}

TableOptions options_of(size_t t, OptimizerKind kind) {
  TableOptions options;
  options.width = kWidths[t];
  options.init = {InitKind::kNormal, 0.1f, 5, 70 + t};
  options.default_value = 0.25f;
  options.optimizer.kind = kind;
  options.optimizer.learning_rate = 0.05f;
  return options;
}

// The pooled values and, as gradients, a function of them: so later steps depend on earlier ones.
struct Model {
  std::vector<std::unique_ptr<Table>> tables;
  BackwardOptions backward;
  float global_clip_norm = 0.0f;

  LayerCall call(const Batch& batch) const {
    LayerCall call;
    for (const auto& table : tables) call.tables.push_back(table.get());
    for (const Column& column : batch.columns) call.features.push_back(column.feature());
    call.table_of = kTableOf;
    return call;
  }

  // By feature: (outputs, D).
  std::vector<std::vector<float>> look_up(const Batch& batch, bool insert, int64_t* ticket) const {
    const LayerCall step = call(batch);
    std::vector<std::vector<float>> pooled;
    std::vector<float*> out;
    for (size_t f = 0; f < kTableOf.size(); ++f) {
      pooled.emplace_back(step.features[f].segments.outputs() * kWidths[kTableOf[f]], -1.0f);
      out.push_back(pooled.back().data());
    }
    *ticket = forward(step, insert, out, nullptr);
    return pooled;
  }

  std::vector<std::vector<float>> train(const Batch& batch, bool forget_ticket = false) const {
    int64_t ticket = 0;
    const auto pooled = look_up(batch, true, &ticket);
    std::vector<std::vector<float>> gradients;
    std::vector<const float*> in;
    for (size_t f = 0; f < pooled.size(); ++f) {
      const std::vector<float>& values = pooled[f];
      gradients.emplace_back();
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t column = i % kWidths[kTableOf[f]];
        gradients.back().push_back(values[i] * 0.5f + static_cast<float>(column) / 8.0f - 0.25f);
      }
      in.push_back(gradients.back().data());
    }
    BackwardOptions options;
    options.what = Backward::kUpdate;
    options.ticket = forget_ticket ? 0 : ticket;
    options.global_clip_norm = global_clip_norm;
    hotrow::backward(call(batch), in, options);
    return pooled;
  }
};

Model model_on(std::shared_ptr<Collectives> ranks, Scheme scheme, OptimizerKind kind,
               bool hashed = false, const std::function<void(TableOptions*)>& change = {},
               StalenessOptions staleness = {}) {
  Model model;
  for (size_t t = 0; t < kTables; ++t) {
    TableOptions options = options_of(t, kind);
    if (change) change(&options);
    Sharding sharding;
    if (ranks != nullptr) {
      sharding.ranks = ranks;
      sharding.scheme = scheme;
      sharding.owner = static_cast<int32_t>(t) % ranks->size();
      sharding.hashed = hashed;
      sharding.width = options.width;
      sharding.staleness = staleness;
      options.width = sharding.columns(ranks->rank());
      options.init.first_column = sharding.first_column(ranks->rank());
    }
    model.tables.push_back(
        std::make_unique<Table>("t" + std::to_string(t), options, 1, false, sharding));
  }
  return model;
}

// By key: weights, then the values of its header.
struct Whole {
  std::vector<float> weights;
  uint32_t clock, count;
};

std::map<int64_t, Whole> rows_of(const Table& table) {
  std::map<int64_t, Whole> found;
  for (const Row& row : exported(table, 100)) {
    std::vector<float> weights(table.width());
    std::memcpy(weights.data(), row.line.data(), weights.size() * sizeof(float));
    found[row.key] = {weights, row.clock, row.count};
  }
  return found;
}

// The rows of all ranks' parts of a table.
std::map<int64_t, Whole> joined(const std::vector<Model>& models, size_t t) {
  std::map<int64_t, Whole> all;
  const Scheme scheme = models[0].tables[t]->sharding().scheme;
  for (size_t r = 0; r < models.size(); ++r) {
    const auto part = rows_of(*models[r].tables[t]);
    if (r > 0 && scheme == Scheme::kColumn) {
      CHECK(part.size() == all.size());
      for (const auto& [key, row] : part) {
        REQUIRE(all.count(key) == 1);
        Whole& whole = all[key];
        CHECK((whole.clock == row.clock && whole.count == row.count));
        whole.weights.insert(whole.weights.end(), row.weights.begin(), row.weights.end());
      }
    } else if (r > 0 && scheme == Scheme::kReplicated) {
      CHECK(part.size() == all.size());
      for (const auto& [key, row] : part) {
        REQUIRE(all.count(key) == 1);
        CHECK(all[key].weights == row.weights);  // the same bits on all ranks
        CHECK((all[key].clock == row.clock && all[key].count == row.count));
      }
    } else {
      for (const auto& [key, row] : part) {
        CHECK(all.count(key) == 0);
        CHECK(models[r].tables[t]->sharding().owner_of(key) == static_cast<int>(r));
        all[key] = row;
      }
    }
  }
  return all;
}

float apart(float a, float b) { return std::fabs(a - b) / std::max(1.0f, std::fabs(a)); }

void check_same_rows(const Model& one, const std::vector<Model>& many, float tolerance) {
  for (size_t t = 0; t < kTables; ++t) {
    const auto expected = rows_of(*one.tables[t]);
    const auto found = joined(many, t);
    REQUIRE(expected.size() == found.size());
    float worst = 0.0f;
    for (const auto& [key, row] : expected) {
      REQUIRE(found.count(key) == 1);
      const Whole& other = found.at(key);
      CHECK((row.clock == other.clock && row.count == other.count));
      for (size_t j = 0; j < row.weights.size(); ++j) {
        worst = std::max(worst, apart(row.weights[j], other.weights[j]));
      }
    }
    CHECK(worst <= tolerance);
  }
}

struct Setting {
  OptimizerKind kind = OptimizerKind::kAdagrad;
  bool hashed = false;
  float global_clip_norm = 0.0f;
  std::function<void(TableOptions*)> change;
  int steps = 12;
  bool forget_tickets = false;
  bool ahead = false;  // each batch is prefetched before the one before it is trained
};

Batch slice_of(const Batch& batch, int rank, int ranks) {
  const size_t r = static_cast<size_t>(rank), count = static_cast<size_t>(ranks);
  const size_t first = batch.samples * r / count, last = batch.samples * (r + 1) / count;
  Batch slice{last - first, {}};
  for (const Column& column : batch.columns) slice.columns.push_back(column.slice(first, last));
  return slice;
}

void compare(int ranks, Scheme scheme, const Setting& setting) {
  CAPTURE(ranks);
  CAPTURE(static_cast<int>(scheme));
  CAPTURE(static_cast<int>(setting.kind));
  std::mt19937_64 random(static_cast<uint64_t>(ranks) * 100 + static_cast<uint64_t>(scheme));
  Model one = model_on(nullptr, scheme, setting.kind, false, setting.change);
  one.global_clip_norm = setting.global_clip_norm;
  const auto collectives = ranks_of(ranks);
  std::vector<Model> many;
  for (const auto& rank : collectives) {
    many.push_back(model_on(rank, scheme, setting.kind, setting.hashed, setting.change));
    many.back().global_clip_norm = setting.global_clip_norm;
  }
  std::vector<Batch> batches;
  for (int step = 0; step < setting.steps; ++step) {
    // Some ranks have no sample; in one step no rank has any.
    const size_t samples = step == 3 ? 0 : step == 5 ? 1 : 40 + random() % 7;
    batches.push_back(some_batch(random, samples, 60));
  }
  constexpr int kEvaluation = 4;  // the step that does not train
  for (int step = 0; step < setting.steps; ++step) {
    const Batch& batch = batches[static_cast<size_t>(step)];
    const bool training = step != kEvaluation;
    std::vector<std::vector<std::vector<float>>> found(static_cast<size_t>(ranks));
    on_each(ranks, [&](int r) {
      const Batch slice = slice_of(batch, r, ranks);
      int64_t ticket;
      const Model& model = many[static_cast<size_t>(r)];
      for (int next : {step == 0 ? 0 : step + 1, step == 0 ? 1 : -1}) {
        if (!setting.ahead || next < 0 || next == kEvaluation || next >= setting.steps) continue;
        const Batch prefetched = slice_of(batches[static_cast<size_t>(next)], r, ranks);
        rank_prefetch(model.call(prefetched));
      }
      found[static_cast<size_t>(r)] = training ? model.train(slice, setting.forget_tickets)
                                               : model.look_up(slice, false, &ticket);
    });
    int64_t ticket;
    const auto expected =
        training ? one.train(batch, setting.forget_tickets) : one.look_up(batch, false, &ticket);
    for (size_t f = 0; f < expected.size(); ++f) {
      std::vector<float> together;
      for (const auto& part : found) {
        together.insert(together.end(), part[f].begin(), part[f].end());
      }
      REQUIRE(together.size() == expected[f].size());
      float worst = 0.0f;
      for (size_t i = 0; i < together.size(); ++i) {
        worst = std::max(worst, apart(expected[f][i], together[i]));
      }
      // Before any sums over ranks all bits are the same, except with partial sums.
      const float exact = scheme == Scheme::kRowBroadcast ? 2e-7f : 0.0f;
      CHECK(worst <= (step == 0 ? exact : 1e-5f));
    }
    // Nothing is summed over ranks, unless the update needs whole rows.
    const bool whole = setting.kind == OptimizerKind::kRowwiseAdagrad ||
                       setting.change != nullptr || setting.global_clip_norm > 0.0f;
    const bool alone = ranks == 1 ? scheme != Scheme::kRowBroadcast : scheme == Scheme::kColumn;
    if (step == 0 && alone && !whole) check_same_rows(one, many, 0.0f);
  }
  check_same_rows(one, many, 1e-5f);
}

}  // namespace

TEST_CASE("rank step: every scheme gives the rows of one rank") {
  for (int ranks : {1, 2, 3, 4}) {
    for (Scheme scheme : kSchemes) compare(ranks, scheme, {});
  }
}

TEST_CASE("rank step: every optimizer gives the rows of one rank") {
  for (OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kRowwiseAdagrad,
        OptimizerKind::kAdam, OptimizerKind::kFtrl}) {
    for (Scheme scheme : kSchemes) {
      Setting setting;
      setting.kind = kind;
      compare(3, scheme, setting);
      // The norm of whole rows, also of those whose columns lie on several ranks.
      setting.change = [](TableOptions* options) {
        options->optimizer.clip_row_norm = 0.3f;
        options->optimizer.l2 = 0.01f;
        options->optimizer.weight_decay = 0.02f;
      };
      compare(3, scheme, setting);
    }
  }
}

TEST_CASE("rank step: hashed owners, clipping by the norm of all, admission, forgotten waiting") {
  for (Scheme scheme : kSchemes) {
    Setting hashed;
    hashed.hashed = true;
    compare(3, scheme, hashed);
    Setting clipped;
    clipped.global_clip_norm = 0.5f;
    compare(3, scheme, clipped);
    Setting admitted;
    admitted.change = [](TableOptions* options) {
      options->admission.kind = AdmissionKind::kCounter;
      options->admission.occurrences = 4;
    };
    compare(3, scheme, admitted);
    Setting forgotten;
    forgotten.forget_tickets = true;
    compare(2, scheme, forgotten);
    Setting cached;
    cached.change = [](TableOptions* options) { options->cache.rows = 8; };
    compare(2, scheme, cached);
    Setting ahead = cached;
    ahead.ahead = true;
    compare(3, scheme, ahead);
  }
}

TEST_CASE("rank step: a key that one rank may not have fails on all, and changes nothing") {
  const auto collectives = ranks_of(3);
  std::vector<Model> models;
  for (const auto& rank : collectives) {
    models.push_back(model_on(rank, Scheme::kRow, OptimizerKind::kSgd, false,
                              [](TableOptions* options) { options->vocabulary_size = 100; }));
  }
  std::mt19937_64 random(7);
  std::vector<std::string> messages(3);
  on_each(3, [&](int r) {
    Batch batch{4, {}};
    for (size_t f = 0; f < kTableOf.size(); ++f) {
      Column column;
      column.combiner = Combiner::kSum;
      column.keys = {1, 2, 3, r == 1 && f == 3 ? 100 : 4};
      column.row_splits = {0, 1, 2, 3, 4};
      batch.columns.push_back(column);
    }
    const Model& model = models[static_cast<size_t>(r)];
    try {
      model.train(batch);
    } catch (const Error& e) {
      CHECK(e.code() == Code::kOutOfRange);
      messages[static_cast<size_t>(r)] = e.what();
    }
    CHECK(model.tables[2]->size() == 0);
    batch.columns[3].keys = {1, 2, 3, 4};
    model.train(batch);  // the next step works
  });
  for (const std::string& message : messages) {
    CHECK(message == "rank 1: table t2: key 100; its vocabulary_size allows [0, 100)");
  }
}

TEST_CASE("rank step: a prefetched batch must come, and its errors come with it") {
  const auto collectives = ranks_of(2);
  std::vector<Model> models;
  for (const auto& rank : collectives) {
    models.push_back(model_on(rank, Scheme::kRow, OptimizerKind::kSgd, false,
                              [](TableOptions* options) { options->vocabulary_size = 1000; }));
  }
  std::vector<std::string> wrong(2), other(2);
  on_each(2, [&](int r) {
    const Model& model = models[static_cast<size_t>(r)];
    std::mt19937_64 random(5);
    Batch bad = some_batch(random, 4, 60);
    for (Column& column : bad.columns) {
      for (int64_t& key : column.keys) key = key < 0 ? -key : key;
    }
    const Batch good = bad;
    if (r == 1) bad.columns[3].keys[2] = 1000;
    rank_prefetch(model.call(bad));
    try {
      model.train(bad);
    } catch (const Error& e) {
      wrong[static_cast<size_t>(r)] = e.what();
    }
    model.train(good);
    rank_prefetch(model.call(good));
    Batch another = good;
    another.columns[3].keys[0] = 999;
    try {
      model.train(another);
    } catch (const Error& e) {
      other[static_cast<size_t>(r)] = e.what();
    }
  });
  for (const std::string& message : wrong) {
    CHECK(message == "rank 1: table t2: key 1000; its vocabulary_size allows [0, 1000)");
  }
  for (const std::string& message : other) {
    CHECK(message.find("not the batch that was prefetched") != std::string::npos);
  }
}

TEST_CASE("rank step: ranks that look up other features get an error") {
  const auto collectives = ranks_of(2);
  std::vector<Model> models;
  for (const auto& rank : collectives) {
    models.push_back(model_on(rank, Scheme::kRow, OptimizerKind::kSgd));
  }
  std::vector<std::string> messages(2);
  on_each(2, [&](int r) {
    const std::vector<int64_t> keys{1, 2};
    LayerCall call = call_of(*models[static_cast<size_t>(r)].tables[0], keys);
    std::vector<float> rows(2 * kWidths[0]);
    std::vector<float*> pooled{rows.data()};
    if (r == 1) {
      call.features.push_back(call.features[0]);
      call.table_of.push_back(0);
      pooled.push_back(rows.data());
    }
    try {
      forward(call, true, pooled, nullptr);
    } catch (const Error& e) {
      messages[static_cast<size_t>(r)] = e.what();
    }
  });
  for (const std::string& message : messages) {
    CAPTURE(message);
    CHECK(message.find("look up other tables") != std::string::npos);
  }
}

}  // namespace hotrow
