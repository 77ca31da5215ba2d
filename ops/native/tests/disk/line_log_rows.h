// Rows whose bytes identify them, for the tests of LineLog.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "core/disk/line_log.h"

namespace hotrow {

using Row = std::pair<uint32_t, uint32_t>;  // partition, place
using Line = std::vector<std::byte>;

// Segments and buffers so small that cleaning never rests.
inline LineLog::Options tiny() {
  LineLog::Options options;
  options.segment_bytes = 4096;
  options.buffer_bytes = 8192;
  return options;
}

// Lines of a tiny segment.
inline uint32_t tiny_lines(size_t line_bytes) {
  const size_t bytes = std::max<size_t>(4096, (8 * (line_bytes + 8) + 4095) / 4096 * 4096);
  return static_cast<uint32_t>(bytes / (line_bytes + 8));
}

// The line of a row in its n-th version: every word depends on all three.
inline void fill(Line& line, Row row, uint32_t version) {
  uint32_t word = row.first * 0x9e3779b1u + row.second * 0x85ebca77u + version * 0xc2b2ae3du;
  for (size_t i = 0; i < line.size(); i += 4) {
    std::memcpy(line.data() + i, &word, 4);
    word = word * 1664525u + 1013904223u;
  }
}

inline bool holds(const Line& line, Row row, uint32_t version) {
  Line expected(line.size());
  fill(expected, row, version);
  return line == expected;
}

inline void write(LineLog& log, Row row, uint32_t version) {
  Line line(log.line_bytes());
  fill(line, row, version);
  log.write(row.first, row.second, line.data());
}

using Model = std::map<Row, uint32_t>;  // versions

// How many of the model's rows read wrong values.
inline size_t wrong_rows(const LineLog& log, const Model& model) {
  std::vector<Line> lines(model.size(), Line(log.line_bytes()));
  std::vector<LineLog::Read> reads;
  for (const auto& [row, version] : model) {
    reads.push_back({row.first, row.second, lines[reads.size()].data()});
  }
  log.read(reads.data(), reads.size());
  size_t wrong = 0, i = 0;
  for (const auto& [row, version] : model) wrong += !holds(lines[i++], row, version);
  return wrong;
}

}  // namespace hotrow
