// TLS of connections to Redis, by GnuTLS: TensorFlow exports OpenSSL's names, so that a second
// OpenSSL in its process would call TensorFlow's.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/redis/topology.h"

struct gnutls_certificate_credentials_st;
struct gnutls_session_int;

namespace hotrow {

using TlsCredentials = std::shared_ptr<gnutls_certificate_credentials_st>;

// The files of a client, read again when they change: certificates are replaced while a server
// runs. Safe from several threads.
class RedisTls {
 public:
  // Fails with InvalidArgument, with the file's name.
  explicit RedisTls(RedisTlsFiles files);

  const RedisTlsFiles& files() const { return files_; }
  // Of the files as they are now; while those cannot be used, of the last ones that could.
  TlsCredentials credentials();

 private:
  using Times = std::vector<std::filesystem::file_time_type>;
  Times times() const;

  const RedisTlsFiles files_;
  std::mutex mutex_;
  Times times_;
  TlsCredentials credentials_;
};

// One connection's session. All calls return without waiting.
class TlsSession {
 public:
  // fd: does not block; outlives the session. host: the name, or the IP address, that the node's
  // certificate must have. Fails with Unavailable.
  TlsSession(TlsCredentials credentials, int fd, const std::string& host);

  enum class Handshake { kDone, kWaitsToRead, kWaitsToWrite, kFailed };
  // Continues the handshake. *why: an error message if it failed.
  Handshake handshake(std::string* why);

  // Both return how many bytes went or came, 0: the socket is full or empty, or -1 with an error
  // message. After `send` returned 0, the next one must have the same data, or more behind it.
  ptrdiff_t send(const char* data, size_t bytes, std::string* why);
  ptrdiff_t receive(char* data, size_t bytes, std::string* why);
  // Whether `receive` has bytes that no longer wait in the socket.
  bool has_input() const;

 private:
  std::string reason(int error) const;

  TlsCredentials credentials_;  // outlives session_, as
  const std::string host_;      // does
  std::unique_ptr<gnutls_session_int, void (*)(gnutls_session_int*)> session_;
  bool sending_ = false;  // a record waits for the socket
};

}  // namespace hotrow
