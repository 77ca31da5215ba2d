// Sums of gradients and optimizers on the device against the CPU's kernels, bit for bit.
#include "core/gpu/kernels/update.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "tests/gpu/described_steps.h"
#include "tests/gpu/device_lines.h"

namespace hotrow {
namespace {

const OptimizerKind kKinds[] = {OptimizerKind::kSgd,     OptimizerKind::kMomentum,
                                OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
                                OptimizerKind::kAdam,    OptimizerKind::kFtrl};
const RowType kTypes[] = {RowType::kFloat32, RowType::kBfloat16, RowType::kFloat16};
const size_t kWidths[] = {1, 3, 8, 16, 17, 32, 64, 100, 128, 1030};

std::vector<Optimizer> variants(OptimizerKind kind) {
  Optimizer base;
  base.kind = kind;
  std::vector<Optimizer> all(4, base);
  all[1].clip_row_norm = 0.7f;
  all[1].nesterov = true;
  all[2].l2 = 0.03f;
  all[2].weight_decay = 0.2f;
  all[3].clip_row_norm = 1.5f;
  all[3].l2 = 0.01f;
  all[3].weight_decay = 0.1f;
  all[3].row_steps = false;
  all[3].l1 = 0.2f;
  all[3].ftrl_l2 = 0.1f;
  all[3].l2_shrinkage = 0.02f;
  all[3].beta = 0.5f;
  return all;
}

struct TableCase {
  Optimizer optimizer;
  size_t width;
  RowType weights, state;
  size_t rows = 24;
  uint32_t many = 40;  // gradient rows of row 5
};

// Tables of one call, on both sides, and the gradients of a step.
class Tables {
 public:
  explicit Tables(std::vector<TableCase> cases, unsigned seed)
      : cases_(std::move(cases)), random_(seed) {
    first_.push_back(0);
    for (size_t t = 0; t < cases_.size(); ++t) {
      const TableCase& c = cases_[t];
      const LineLayout layout{c.width, c.weights, c.state, c.optimizer.state_vectors(),
                              c.optimizer.state_scalars()};
      lines_.push_back(std::make_unique<Lines>(layout, c.optimizer, c.rows, t % 3 * 4, seed));
      first_.push_back(first_.back() + static_cast<uint32_t>(c.rows));
      for (size_t u = 0; u < c.rows; ++u) {
        const bool missing = u % 11 == 7;
        cpu_lines_.push_back(missing ? nullptr : lines_[t]->line(u));
        device_lines_.push_back(missing ? nullptr : lines_[t]->device_line(u));
      }
    }
    std::vector<float> corrections;
    for (int i = 0; i < 50; ++i) corrections.push_back(i == 0 ? 1.0f : 1.0f - 1.0f / (i + 1));
    corrections_ = std::make_unique<DeviceArray<float>>(corrections);
    cpu_corrections_ = corrections;
  }

  // Draws the gradients of a step: 0 to 3 gradient rows a row, row 5 has many. spoiled: some values
  // are not finite, or too large for an optimizer that squares them.
  void draw(bool with_shares, bool spoiled = false) {
    std::normal_distribution<float> normal;
    begins_.assign(1, 0);
    std::vector<size_t> offsets;
    size_t values = 0;
    for (const TableCase& c : cases_) {
      for (size_t u = 0; u < c.rows; ++u) {
        const uint32_t terms = u == 5 ? c.many : random_() % 4;
        begins_.push_back(begins_.back() + terms);
        for (uint32_t i = 0; i < terms; ++i, values += c.width) offsets.push_back(values);
      }
    }
    const size_t count = offsets.size();
    values_.resize(values);
    for (float& x : values_) x = normal(random_);
    const float wrong[] = {NAN, INFINITY, -INFINITY, 1e30f};
    for (size_t i = 0; spoiled && i < values; i += 1 + random_() % 600) {
      values_[i] = wrong[random_() % 4];
    }
    shares_.resize(count);
    for (float& x : shares_) x = normal(random_);
    // Gradient rows lie anywhere; positions are a permutation of the order of the sums.
    std::vector<uint32_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = static_cast<uint32_t>(i);
    std::shuffle(order.begin(), order.end(), random_);
    zeros_.assign(1030, 0.0f);
    device_values_ = std::make_unique<DeviceArray<float>>(values_);
    cpu_rows_.clear();
    std::vector<const float*> rows(count);
    std::vector<float> shares(count);
    for (size_t j = 0; j < count; ++j) {
      const bool zero = random_() % 16 == 0;
      cpu_rows_.push_back(zero ? zeros_.data() : values_.data() + offsets[j]);
      rows[order[j]] = zero ? nullptr : device_values_->data() + offsets[j];
      shares[order[j]] = shares_[j];
    }
    rows_ = std::make_unique<DeviceArray<const float*>>(rows);
    device_shares_ = std::make_unique<DeviceArray<float>>(shares);
    device_begins_ = std::make_unique<DeviceArray<uint32_t>>(begins_);
    order_ = std::make_unique<DeviceArray<uint32_t>>(order);
    with_shares_ = with_shares;
  }

  UpdateStep step(size_t t, uint32_t clock, bool device) const {
    UpdateStep step;
    step.optimizer = cases_[t].optimizer;
    step.layout = lines_[t]->layout();
    step.learning_rate = 0.05f;
    step.scale = 0.5f;
    step.clock = clock;
    step.seed = 2026 + t;
    step.corrections = device ? corrections_->data() : cpu_corrections_.data();
    step.corrections_count = cpu_corrections_.size();
    return step;
  }
  DeviceGradients gradients() const {
    return {rows_->data(), with_shares_ ? device_shares_->data() : nullptr, device_begins_->data(),
            order_->data(), cpu_rows_.size()};
  }
  RowGradients cpu_gradients(size_t t) const {
    return {cpu_rows_.data(), with_shares_ ? shares_.data() : nullptr, begins_.data() + first_[t]};
  }
  size_t most_width() const {
    size_t most = 0;
    for (const TableCase& c : cases_) most = std::max(most, c.width);
    return most;
  }

  void update(uint32_t clock, const std::vector<uint32_t>* counts,
              const std::vector<std::unique_ptr<DeviceArray<float>>>* sums = nullptr) {
    std::vector<DeviceStep> steps;
    const DeviceArray<uint64_t> updates(std::vector<uint64_t>(2 * cases_.size()));
    for (size_t t = 0; t < cases_.size(); ++t) {
      steps.push_back({step(t, clock, true), sums == nullptr ? nullptr : (*sums)[t]->data(),
                       nullptr, updates.data() + 2 * t});
    }
    const DeviceArray<uint32_t> first(first_);
    const DeviceArray<std::byte*> lines(device_lines_);
    const DeviceArray<uint32_t> device_counts(counts == nullptr ? std::vector<uint32_t>()
                                                                : *counts);
    const StepsOnDevice described(steps);
    const Scratch scratch(device_update_scratch(gradients().count, most_width()));
    device_update(steps.data(), steps.size(), described.there(), first.data(), gradients(),
                  counts == nullptr ? nullptr : device_counts.data(), lines.data(), scratch.data(),
                  scratch.bytes(), kStream);
    std::vector<uint64_t> expected;
    for (size_t t = 0; t < cases_.size(); ++t) {
      std::byte* const* const own = cpu_lines_.data() + first_[t];
      expected.push_back(static_cast<uint64_t>(std::count_if(
          own, own + cases_[t].rows, [](std::byte* line) { return line != nullptr; })));
      expected.push_back(kernels().update(step(t, clock, false), cpu_gradients(t),
                                          counts == nullptr ? nullptr : counts->data() + first_[t],
                                          0, cases_[t].rows, own));
      left_out += expected.back();
    }
    CHECK(updates.read() == expected);
    wait(first);
  }

  std::vector<std::unique_ptr<DeviceArray<float>>> sum() {
    std::vector<std::unique_ptr<DeviceArray<float>>> sums;
    std::vector<DeviceSums> wanted;
    for (const TableCase& c : cases_) {
      sums.push_back(std::make_unique<DeviceArray<float>>(c.rows * c.width));
      wanted.push_back({c.width, sums.back()->data()});
    }
    const DeviceArray<uint32_t> first(first_);
    const Scratch scratch(device_sum_scratch(gradients().count, cases_.size(), most_width()));
    device_sum(wanted.data(), wanted.size(), first.data(), gradients(), scratch.data(),
               scratch.bytes(), kStream);
    size_t wrong = 0;
    for (size_t t = 0; t < cases_.size(); ++t) {
      const TableCase& c = cases_[t];
      std::vector<float> expected(c.rows * c.width);
      kernels().sum(cpu_gradients(t), c.width, 0, c.rows, expected.data());
      const auto got = sums[t]->read();
      wrong += std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) != 0;
    }
    CHECK(wrong == 0);
    wait(first);
    return sums;
  }

  void compare() const {
    for (size_t t = 0; t < cases_.size(); ++t) {
      const TableCase& c = cases_[t];
      INFO("kind ", static_cast<int>(c.optimizer.kind), " width ", c.width, " weights ",
           static_cast<int>(c.weights), " state ", static_cast<int>(c.state), " clip ",
           c.optimizer.clip_row_norm);
      CHECK(lines_[t]->differences() == 0);
    }
  }
  Lines& lines(size_t t) { return *lines_[t]; }
  uint64_t left_out = 0;  // rows that were not updated

 private:
  // Work on the stream ends before its arrays are freed.
  template <typename T>
  static void wait(const DeviceArray<T>& array) {
    array.read();
  }

  std::vector<TableCase> cases_;
  std::mt19937 random_;
  std::vector<uint32_t> first_;
  std::vector<std::unique_ptr<Lines>> lines_;
  std::vector<std::byte*> cpu_lines_, device_lines_;
  std::unique_ptr<DeviceArray<float>> corrections_;
  std::vector<float> cpu_corrections_;
  bool with_shares_ = false;
  std::vector<uint32_t> begins_;
  std::vector<float> values_, shares_, zeros_;
  std::vector<const float*> cpu_rows_;
  std::unique_ptr<DeviceArray<float>> device_values_, device_shares_;
  std::unique_ptr<DeviceArray<const float*>> rows_;
  std::unique_ptr<DeviceArray<uint32_t>> device_begins_, order_;
};

std::vector<TableCase> all_cases(OptimizerKind kind) {
  std::vector<TableCase> cases;
  size_t n = 0;
  for (const Optimizer& optimizer : variants(kind)) {
    for (RowType weights : kTypes) {
      for (RowType state : kTypes) {
        if (optimizer.state_vectors() == 0 && state != RowType::kFloat32) continue;
        for (size_t width : kWidths) {
          // Half of them, and fewer of the widest.
          if ((kLess ? ++n % 16 != 0 : ++n % 2 == 0) || (width == 1030 && n % 3 != 0)) continue;
          cases.push_back({optimizer, width, weights, state, 24, n % 9 == 0 ? 600u : 40u});
        }
      }
    }
  }
  return cases;
}

}  // namespace

TEST_CASE("device update: every optimizer, option, type and width has the CPU's bits") {
  for (OptimizerKind kind : kKinds) {
    Tables tables(all_cases(kind), 11);
    for (uint32_t clock = 1; clock <= (kLess ? 2 : 3); ++clock) {
      tables.draw(clock == 2);
      tables.update(clock, nullptr);
      tables.compare();
    }
  }
}

TEST_CASE("device update: tables of all kinds in one call, with tables without rows") {
  std::vector<TableCase> cases;
  for (OptimizerKind kind : kKinds) {
    Optimizer optimizer;
    optimizer.kind = kind;
    cases.push_back({optimizer, 16, RowType::kFloat32, RowType::kFloat32, 0});
    cases.push_back({optimizer, 33, RowType::kFloat32, RowType::kFloat32, 7, 200});
    cases.push_back({optimizer, 128, RowType::kBfloat16, RowType::kFloat32, 50, 130});
    cases.push_back({optimizer, 4, RowType::kFloat32, RowType::kFloat32, 70, 129});
  }
  for (unsigned seed = 1; seed <= 5; ++seed) {
    Tables tables(cases, seed);
    tables.draw(seed % 2 == 0);
    tables.update(seed, nullptr);
    tables.compare();
  }
}

TEST_CASE("device update: a row with very many gradients is summed in its order") {
  Optimizer optimizer;
  optimizer.kind = OptimizerKind::kAdagrad;
  for (uint32_t many : {127u, 128u, 129u, 255u, 256u, 257u, 512u, 5000u}) {
    Tables tables({{optimizer, 20, RowType::kFloat32, RowType::kFloat32, 8, many},
                   {optimizer, 3, RowType::kFloat32, RowType::kFloat32, 6, many}},
                  many);
    tables.draw(many % 2 == 0);
    tables.sum();
    tables.update(1, nullptr);
    tables.compare();
  }
}

TEST_CASE("device update: so many rows that a warp takes 16, or 32, together") {
  Optimizer optimizer;
  optimizer.kind = OptimizerKind::kSgd;
  for (const size_t rows : {size_t{72'000}, size_t{140'000}}) {
    if (kSanitized) continue;
    Tables tables({{optimizer, 100, RowType::kFloat32, RowType::kFloat32, 301},
                   {optimizer, 2, RowType::kFloat32, RowType::kFloat32, rows, 200},
                   {optimizer, 17, RowType::kFloat32, RowType::kFloat32, 77}},
                  static_cast<unsigned>(rows));
    tables.draw(false);
    tables.sum();
    tables.update(1, nullptr);
    tables.compare();
  }
}

TEST_CASE("device update: sums that waited, with counts of their own") {
  for (OptimizerKind kind : kKinds) {
    Optimizer optimizer;
    optimizer.kind = kind;
    optimizer.clip_row_norm = 1.0f;
    Tables tables({{optimizer, 24, RowType::kFloat32, RowType::kFloat32, 40, 300},
                   {optimizer, 130, RowType::kFloat16, RowType::kBfloat16, 10, 3}},
                  3);
    tables.draw(true);
    const auto sums = tables.sum();
    std::vector<uint32_t> counts(50);
    for (size_t u = 0; u < counts.size(); ++u) counts[u] = static_cast<uint32_t>(u * 100);
    // The CPU sums again, which gives the same.
    tables.update(7, &counts, &sums);
    tables.compare();
  }
}

TEST_CASE("device update: lookups stop at 2^32 - 1; corrections end; a step without gradients") {
  Optimizer optimizer;
  optimizer.kind = OptimizerKind::kAdam;
  Tables tables({{optimizer, 8, RowType::kFloat32, RowType::kFloat32, 9, 40}}, 4);
  RowHeader full{3, 1, UINT32_MAX - 3};
  std::memcpy(tables.lines(0).line(5), &full, sizeof(full));
  const float steps = 48.0f;
  for (size_t u = 0; u < 9; ++u) {
    std::memcpy(
        tables.lines(0).line(u) + sizeof(RowHeader) + tables.lines(0).layout().scalars_offset(),
        &steps, sizeof(steps));
  }
  tables.lines(0).write();
  for (uint32_t clock = 1; clock <= 4; ++clock) {
    tables.draw(false);
    tables.update(clock, nullptr);
    tables.compare();
  }
  device_update(nullptr, 0, {}, nullptr, {}, nullptr, nullptr, nullptr, 0, kStream);
}

TEST_CASE("device update: rows that would not be finite stay as they were") {
  for (const OptimizerKind kind : kKinds) {
    for (const Optimizer& optimizer : variants(kind)) {
      Tables tables({{optimizer, 1, RowType::kFloat32, RowType::kFloat32},
                     {optimizer, 17, RowType::kFloat32, RowType::kFloat32},
                     {optimizer, 64, RowType::kFloat16, RowType::kFloat32},
                     {optimizer, 128, RowType::kFloat32, RowType::kFloat32},
                     {optimizer, 1030, RowType::kBfloat16, RowType::kFloat16},
                     {optimizer, 1030, RowType::kFloat32, RowType::kFloat32}},
                    7);
      for (uint32_t clock = 1; clock <= 3; ++clock) {
        tables.draw(clock % 2 == 0, true);
        tables.update(clock, nullptr);
        tables.compare();
      }
      CHECK(tables.left_out > 0);
    }
  }
}

TEST_CASE("device update: gradients that are not finite, and denormals") {
  Optimizer optimizer;
  optimizer.kind = OptimizerKind::kSgd;
  const LineLayout layout{4, RowType::kFloat32, RowType::kFloat32, 0, 0};
  Lines lines(layout, optimizer, 1, 0, 1);
  const std::vector<float> values{INFINITY, 1e-42f, -0.0f, 3e38f};
  const DeviceArray<float> gradient(values);
  const DeviceArray<const float*> rows(std::vector<const float*>{gradient.data()});
  const DeviceArray<uint32_t> begins(std::vector<uint32_t>{0, 1}), order(std::vector<uint32_t>{0});
  const DeviceArray<std::byte*> pointers(std::vector<std::byte*>{lines.device_line(0)});
  UpdateStep step;
  step.optimizer = optimizer;
  step.layout = layout;
  const DeviceStep given{step, nullptr};
  const StepsOnDevice described({given});
  const Scratch scratch(device_update_scratch(1, 4));
  device_update(&given, 1, described.there(), begins.data(),
                {rows.data(), nullptr, begins.data(), order.data(), 1}, nullptr, pointers.data(),
                scratch.data(), scratch.bytes(), kStream);
  const float* cpu_rows[] = {values.data()};
  const uint32_t cpu_begins[] = {0, 1};
  std::byte* cpu_lines[] = {lines.line(0)};
  kernels().update(step, {cpu_rows, nullptr, cpu_begins}, nullptr, 0, 1, cpu_lines);
  CHECK(lines.differences() == 0);
}

TEST_CASE("device update: sums of -0 stay -0, of few rows and of many") {
  const std::vector<uint32_t> begins{0, 1, 4, 204, 204};
  const DeviceArray<float> row(std::vector<float>(3, -0.0f));
  const DeviceArray<const float*> rows(std::vector<const float*>(204, row.data()));
  std::vector<uint32_t> order(204);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  const DeviceArray<uint32_t> device_begins(begins), device_order(order),
      first(std::vector<uint32_t>{0, 4});
  const DeviceArray<float> sums(4 * 3);
  const DeviceSums wanted{3, sums.data()};
  const Scratch scratch(device_sum_scratch(204, 1, 3));
  device_sum(&wanted, 1, first.data(),
             {rows.data(), nullptr, device_begins.data(), device_order.data(), 204}, scratch.data(),
             scratch.bytes(), kStream);
  const auto got = sums.read();
  for (size_t i = 0; i < 12; ++i) CHECK(std::signbit(got[i]) == (i < 9));
}

}  // namespace hotrow
