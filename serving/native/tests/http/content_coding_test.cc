#include "http/content_coding.h"

#include <doctest/doctest.h>
#include <zlib.h>
#include <zstd.h>

#include <random>
#include <string>

#include "base/refused.h"

namespace hotrow_server {
namespace {

constexpr size_t kMost = size_t{1} << 20;

std::string text(size_t bytes) {
  std::string made;
  for (int i = 0; made.size() < bytes; ++i) made += std::to_string(i * 7919) + ", ";
  made.resize(bytes);
  return made;
}

std::string coded(std::string body, const char* coding) {
  REQUIRE(compress(&body, coding) == std::string(coding));
  return body;
}

std::string plain(const std::string& body, const char* coding, size_t most_bytes = kMost) {
  const std::optional<Body> found = uncompressed(body, coding, most_bytes);
  REQUIRE(found.has_value());
  return std::string(found->view());
}

// The message of a refusal, "" for none.
std::string refused(const std::string& body, const char* coding) {
  try {
    plain(body, coding);
  } catch (const Refused& error) {
    CHECK(error.code() == grpc::StatusCode::INVALID_ARGUMENT);
    return error.what();
  }
  return "";
}

std::string chosen(const char* accepted) {
  std::string body = text(2000);
  const char* const coding = compress(&body, accepted);
  return coding == nullptr ? "" : coding;
}

}  // namespace

TEST_CASE("content_coding: what is compressed comes back") {
  for (const char* const coding : {"gzip", "zstd"}) {
    for (const size_t bytes : {size_t{1024}, size_t{65536}, size_t{300'000}, kMost}) {
      const std::string body = text(bytes);
      const std::string compressed = coded(body, coding);
      CHECK(compressed.size() < bytes / 2 + 512);
      CHECK(plain(compressed, coding) == body);
    }
    std::mt19937 random(1);
    std::string noise(200'000, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    CHECK(plain(coded(noise, coding), coding) == noise);
  }
  const std::string body = text(5000);
  CHECK(plain(coded(body, "gzip"), " GZip ") == body);
  CHECK(!uncompressed(body, "br", kMost).has_value());
  CHECK(!uncompressed(body, "", kMost).has_value());
  CHECK(!uncompressed(body, "gzip, gzip", kMost).has_value());
}

TEST_CASE("content_coding: a body may have several members or frames, or none") {
  const std::string one = text(5000), two = text(70'000);
  for (const char* const coding : {"gzip", "zstd"}) {
    CHECK(plain(coded(one, coding) + coded(two, coding), coding) == one + two);
    CHECK(plain("", coding).empty());
  }
  const std::string zeros(3, '\0');
  CHECK(plain(coded(one, "gzip") + zeros + coded(two, "gzip") + zeros, "gzip") == one + two);
}

TEST_CASE("content_coding: a body in no such coding is refused") {
  for (const auto& [coding, name] : {std::pair("gzip", "gzipped"), std::pair("zstd", "zstd")}) {
    const std::string message = std::string("Failed to uncompress the ") + name + " body";
    const std::string good = coded(text(5000), coding);
    for (size_t bytes = 1; bytes < good.size(); bytes += 1 + bytes / 4) {
      CHECK(refused(good.substr(0, bytes), coding) == message);
    }
    CHECK(refused(good.substr(0, good.size() - 1), coding) == message);
    CHECK(refused(good + "x", coding) == message);
    CHECK(refused("{\"instances\": [1]}", coding) == message);
    CHECK(refused(std::string(40, '\0'), coding) == message);
  }
  std::string broken = coded(text(5000), "gzip");
  broken[broken.size() - 6] ^= 1;  // of the checksum
  CHECK(refused(broken, "gzip") == "Failed to uncompress the gzipped body");
}

TEST_CASE("content_coding: a body that grows too long is refused at the limit") {
  for (const char* const coding : {"gzip", "zstd"}) {
    const std::string body = text(100'000), compressed = coded(body, coding);
    CHECK(plain(compressed, coding, body.size()) == body);
    CHECK_THROWS_AS(uncompressed(compressed, coding, body.size() - 1), BodyTooLong);
    CHECK_THROWS_AS(uncompressed(compressed, coding, 0), BodyTooLong);
  }
  // A gigabyte for each kilobyte or so. The limit is met before the broken end.
  std::string bomb;
  for (int i = 0; i < 100; ++i) bomb += coded(std::string(size_t{1} << 20, '\0'), "zstd");
  CHECK(refused(bomb + "x", "zstd") ==
        "The request body is longer than 1048576 bytes; send less at a time, or start the server "
        "with a larger --rest_api_max_body_bytes");
}

TEST_CASE("content_coding: the client chooses the coding of a reply") {
  CHECK(chosen("") == "");
  CHECK(chosen("identity") == "");
  CHECK(chosen("*") == "");
  CHECK(chosen("gzip") == "gzip");
  CHECK(chosen("gzip, deflate, br, zstd") == "zstd");
  CHECK(chosen("gzip;q=1.0, zstd;q=0.5") == "gzip");
  CHECK(chosen("GZIP; q = 0.5 ,zstd;q=0.4") == "gzip");
  CHECK(chosen("gzip;q=0, identity") == "");
  CHECK(chosen("gzip;q=0,gzip") == "gzip");
  CHECK(chosen("gzip;q=-1") == "");
  CHECK(chosen("gzip;q=x, zstd;q=") == "");
  CHECK(chosen("gzip;q") == "");
  CHECK(chosen("gzip;q=0.5;x=1") == "");
  CHECK(chosen("gzip;x=0") == "gzip");
  CHECK(chosen("gzip;q=nan") == "");
  CHECK(chosen("gzip;") == "gzip");
  CHECK(chosen(",;,=;q=1,") == "");
  std::string small = text(1023);
  CHECK(compress(&small, "gzip") == nullptr);
  CHECK(small == text(1023));
}

}  // namespace hotrow_server
