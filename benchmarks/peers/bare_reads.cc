// MGET and nothing else: what hiredis needs for reads of given names over one connection, one after
// the other. Nothing is done with the answers.
//
//     bare_reads PORT NAMES_FILE READS
//
// The file: of each read the number of names (uint32), and of each name its bytes (uint32), then
// itself. Reads go out as commands of up to 512 names, all at once. Prints JSON: microseconds of a
// read (p50, p99) and of this program's CPU a read, bytes a read, names that had no value.
#include <hiredis/hiredis.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kMostNames = 512;

struct Read {
  std::string bytes;  // as they are sent
  size_t commands = 0;
};

double cpu_micros() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return 1e6 * static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

uint32_t take(const std::string& file, size_t* at) {
  uint32_t value;
  std::memcpy(&value, file.data() + *at, sizeof(value));
  *at += sizeof(value);
  return value;
}

std::vector<Read> reads_of(const std::string& file) {
  std::vector<Read> reads;
  for (size_t at = 0; at < file.size();) {
    Read read;
    for (uint32_t left = take(file, &at); left > 0;) {
      const uint32_t names = std::min(left, kMostNames);
      read.bytes += "*" + std::to_string(1 + names) + "\r\n$4\r\nMGET\r\n";
      for (uint32_t i = 0; i < names; ++i) {
        const uint32_t bytes = take(file, &at);
        read.bytes += "$" + std::to_string(bytes) + "\r\n";
        read.bytes.append(file, at, bytes);
        read.bytes += "\r\n";
        at += bytes;
      }
      left -= names;
      ++read.commands;
    }
    reads.push_back(std::move(read));
  }
  return reads;
}

}  // namespace

int main(int count, char** values) {
  if (count != 4) return 2;
  std::ifstream file(values[2], std::ios::binary);
  const std::vector<Read> reads = reads_of({std::istreambuf_iterator<char>(file), {}});
  const size_t wanted = std::strtoull(values[3], nullptr, 10);
  redisContext* const connection = redisConnect("127.0.0.1", std::atoi(values[1]));
  if (connection == nullptr || connection->err != 0) return 1;
  std::vector<double> micros;
  size_t bytes = 0, absent = 0;
  const double cpu = cpu_micros();
  for (size_t i = 0; i < wanted; ++i) {
    const Read& read = reads[i % reads.size()];
    const auto begin = Clock::now();
    redisAppendFormattedCommand(connection, read.bytes.data(), read.bytes.size());
    for (size_t c = 0; c < read.commands; ++c) {
      void* reply = nullptr;
      if (redisGetReply(connection, &reply) != REDIS_OK) return 1;
      const auto* const values_of = static_cast<redisReply*>(reply);
      if (values_of->type != REDIS_REPLY_ARRAY) return 1;
      for (size_t e = 0; e < values_of->elements; ++e) {
        bytes += values_of->element[e]->len;
        absent += values_of->element[e]->type != REDIS_REPLY_STRING;
      }
      freeReplyObject(reply);
    }
    micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  const double used = cpu_micros() - cpu, total = static_cast<double>(wanted);
  redisFree(connection);
  std::sort(micros.begin(), micros.end());
  std::printf(
      "{\"p50_us\": %.1f, \"p99_us\": %.1f, \"client_cpu_us\": %.1f, \"bytes\": %.0f, "
      "\"absent\": %zu}\n",
      micros[micros.size() / 2], micros[micros.size() * 99 / 100], used / total,
      static_cast<double>(bytes) / total, absent);
  return 0;
}
