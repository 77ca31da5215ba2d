#include "http/content_coding.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

namespace hotrow_server {
namespace {

// A smaller reply is not worth it.
constexpr size_t kLeastReplyBytes = 1024;
// Levels of gzip and zstd; higher ones cost much time and save little.
constexpr int kLevel = 1;
constexpr size_t kPartBytes = size_t{64} << 10;
constexpr size_t kMostAtOnce = std::numeric_limits<uInt>::max();  // zlib counts in 32 bits
constexpr int kGzip = 15 + 16;  // zlib's windowBits: the largest window, with gzip's header

constexpr std::string_view kBlank = " \t\r\n\v\f";

std::string_view stripped(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kBlank)));
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

// `word`: in lower case.
bool is_word(std::string_view text, std::string_view word) {
  return std::equal(text.begin(), text.end(), word.begin(), word.end(),
                    [](char letter, char wanted) {
                      return std::tolower(static_cast<unsigned char>(letter)) == wanted;
                    });
}

// --- requests ------------------------------------------------------------------------------------

[[noreturn]] void refuse_coding(const char* name) {
  refuse(std::string("Failed to uncompress the ") + name + " body");
}

// An uncompressed body that grows up to a limit.
class Plain {
 public:
  explicit Plain(size_t most_bytes) : most_bytes_(most_bytes) {}

  // Room for a part; after the limit, for bytes that show that it is exceeded.
  char* room(size_t* bytes) {
    char* const to = body_.reserve(kPartBytes);
    *bytes = std::min(kPartBytes, body_.reserved());
    return to;
  }
  void commit(size_t bytes) {
    body_.commit(bytes);
    if (body_.size() > most_bytes_) throw BodyTooLong(most_bytes_);
  }
  Body take() { return std::move(body_); }

 private:
  const size_t most_bytes_;
  Body body_;
};

class Inflater {
 public:
  Inflater() {
    if (inflateInit2(&stream_, kGzip) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;

  // Uncompresses one member, which the bytes begin with, and removes it from them.
  void read_member(std::string_view* bytes, Plain* plain) {
    inflateReset(&stream_);
    for (int state = Z_OK; state != Z_STREAM_END;) {
      size_t room = 0;
      stream_.next_out = reinterpret_cast<Bytef*>(plain->room(&room));
      stream_.avail_out = static_cast<uInt>(room);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes->data()));
      const auto given = static_cast<uInt>(std::min(bytes->size(), kMostAtOnce));
      stream_.avail_in = given;
      state = inflate(&stream_, Z_NO_FLUSH);
      // Z_BUF_ERROR: it ends too early.
      if (state != Z_OK && state != Z_STREAM_END) refuse_coding("gzipped");
      bytes->remove_prefix(given - stream_.avail_in);
      plain->commit(room - stream_.avail_out);
    }
  }

 private:
  z_stream stream_{};
};

Body gunzipped(std::string_view bytes, size_t most_bytes) {
  Plain plain(most_bytes);
  Inflater inflater;
  while (!bytes.empty()) {
    inflater.read_member(&bytes, &plain);
    // Zeros may follow a member.
    bytes.remove_prefix(std::min(bytes.size(), bytes.find_first_not_of('\0')));
  }
  return plain.take();
}

Body unzstd(std::string_view bytes, size_t most_bytes) {
  // Its window has at most 128 MiB, of which memory holds what the body fills.
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                        &ZSTD_freeDStream);
  if (stream == nullptr) throw std::bad_alloc();
  Plain plain(most_bytes);
  ZSTD_inBuffer from{bytes.data(), bytes.size(), 0};
  size_t missing = 0;  // 0: at the end of a frame
  while (from.pos < from.size || missing != 0) {
    ZSTD_outBuffer to{nullptr, 0, 0};
    to.dst = plain.room(&to.size);
    const size_t before = from.pos;
    missing = ZSTD_decompressStream(stream.get(), &to, &from);
    // Without progress it ends too early.
    if (ZSTD_isError(missing) != 0 || (from.pos == before && to.pos == 0 && missing != 0)) {
      refuse_coding("zstd");
    }
    plain.commit(to.pos);
  }
  return plain.take();
}

// --- replies -------------------------------------------------------------------------------------

std::string gzipped(std::string_view body) {
  z_stream stream{};
  constexpr int kMemory = 8;  // zlib's default
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &deflateEnd);
  std::string compressed(deflateBound(&stream, body.size()), '\0');
  size_t written = 0;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    const auto given = static_cast<uInt>(std::min(body.size(), kMostAtOnce));
    const auto room = static_cast<uInt>(std::min(compressed.size() - written, kMostAtOnce));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
    stream.avail_in = given;
    stream.next_out = reinterpret_cast<Bytef*>(compressed.data() + written);
    stream.avail_out = room;
    state = deflate(&stream, given == body.size() ? Z_FINISH : Z_NO_FLUSH);
    body.remove_prefix(given - stream.avail_in);
    written += room - stream.avail_out;
  }
  compressed.resize(written);
  return compressed;
}

std::string zstd_of(std::string_view body) {
  std::string compressed(ZSTD_compressBound(body.size()), '\0');
  const size_t written =
      ZSTD_compress(compressed.data(), compressed.size(), body.data(), body.size(), kLevel);
  if (ZSTD_isError(written) != 0) throw std::bad_alloc();
  compressed.resize(written);
  return compressed;
}

// A quality value as Python reads floats; nothing if it is none.
std::optional<double> weight_of(std::string_view text) {
  text = stripped(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double weight = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && !std::isnan(weight) ? std::optional(weight) : std::nullopt;
}

struct Weights {
  double zstd = 0, gzip = 0;
};

// The client's weight (q) of each coding; "*" is no wildcard here.
Weights weights_of(std::string_view accepted) {
  Weights weights;
  while (!accepted.empty()) {
    const std::string_view part = accepted.substr(0, accepted.find(','));
    accepted.remove_prefix(std::min(accepted.size(), part.size() + 1));
    const std::string_view coding = stripped(part.substr(0, part.find(';')));
    double* const to = is_word(coding, "zstd")   ? &weights.zstd
                       : is_word(coding, "gzip") ? &weights.gzip
                                                 : nullptr;
    if (to == nullptr) continue;
    const size_t semicolon = std::min(part.find(';'), part.size() - 1);
    const std::string_view parameter = part.substr(semicolon + 1);
    const size_t equals = std::min(parameter.find('='), parameter.size());
    if (stripped(parameter.substr(0, equals)) != "q") {
      *to = 1;
    } else if (equals < parameter.size()) {
      *to = weight_of(parameter.substr(equals + 1)).value_or(*to);
    }
  }
  return weights;
}

}  // namespace

std::optional<Body> uncompressed(std::string_view body, std::string_view coding,
                                 size_t most_bytes) {
  coding = stripped(coding);
  if (is_word(coding, "gzip")) return gunzipped(body, most_bytes);
  if (is_word(coding, "zstd")) return unzstd(body, most_bytes);
  return std::nullopt;
}

const char* compress(std::string* body, std::string_view accepted) {
  if (body->size() < kLeastReplyBytes) return nullptr;
  const Weights weights = weights_of(accepted);
  if (std::max(weights.zstd, weights.gzip) <= 0) return nullptr;
  if (weights.zstd >= weights.gzip) {
    *body = zstd_of(*body);
    return "zstd";
  }
  *body = gzipped(*body);
  return "gzip";
}

}  // namespace hotrow_server
