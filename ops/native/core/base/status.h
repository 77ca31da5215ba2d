// Status of a call into the core: a code (gRPC's numbers) and a message.
#pragma once

#include <cstdarg>
#include <string>
#include <utility>

namespace hotrow {

enum class Code : int {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

// Thrown only inside the core; the C ABI converts it to a code and a thread-local message.
class Error : public std::exception {
 public:
  Error(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  Code code() const { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  Code code_;
  std::string message_;
};

// The system has no memory for so many bytes.
class OutOfMemory final : public Error {
 public:
  using Error::Error;
};

// Throws an Error whose message is formatted as by printf.
[[noreturn]] void fail(Code code, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace hotrow
