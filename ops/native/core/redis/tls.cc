#include "core/redis/tls.h"

#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include <system_error>
#include <utility>

#include "core/base/status.h"

namespace hotrow {
namespace {

// As Python's `ssl.create_default_context` allows.
constexpr char kVersions[] = "-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

void check(int code, const std::string& file) {
  if (code >= 0) return;
  fail(Code::kInvalidArgument,
       "the certificates of the store cannot be used: %s: %s; give PEM files", file.c_str(),
       gnutls_strerror(code));
}

// The system's authorities and the given ones, and the client's certificate.
TlsCredentials load(const RedisTlsFiles& files) {
  gnutls_certificate_credentials_t made = nullptr;
  if (gnutls_certificate_allocate_credentials(&made) < 0) throw std::bad_alloc();
  TlsCredentials credentials(made, gnutls_certificate_free_credentials);
  // A system without authorities has files of its own.
  const int found = gnutls_certificate_set_x509_system_trust(made);
  if (files.ca.empty()) check(found, "the system's authorities");
  if (!files.ca.empty()) {
    const int read =
        gnutls_certificate_set_x509_trust_file(made, files.ca.c_str(), GNUTLS_X509_FMT_PEM);
    check(read == 0 ? GNUTLS_E_NO_CERTIFICATE_FOUND : read, files.ca);
  }
  if (!files.cert.empty()) {
    check(gnutls_certificate_set_x509_key_file(made, files.cert.c_str(), files.key.c_str(),
                                               GNUTLS_X509_FMT_PEM),
          files.cert + " with " + files.key);
  }
  return credentials;
}

bool is_ip_address(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool would_wait(ptrdiff_t code) { return code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED; }

}  // namespace

RedisTls::RedisTls(RedisTlsFiles files)
    : files_(std::move(files)), times_(times()), credentials_(load(files_)) {}

RedisTls::Times RedisTls::times() const {
  Times all;
  for (const std::string& file : {files_.ca, files_.cert, files_.key}) {
    std::error_code ignored;
    all.push_back(std::filesystem::last_write_time(file, ignored));
  }
  return all;
}

TlsCredentials RedisTls::credentials() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Times now = times();
  if (now == times_) return credentials_;
  try {
    credentials_ = load(files_);
    times_ = std::move(now);
  } catch (const Error&) {
    // A certificate without its key yet: the next connection tries again.
  }
  return credentials_;
}

TlsSession::TlsSession(TlsCredentials credentials, int fd, const std::string& host)
    : credentials_(std::move(credentials)), host_(host), session_(nullptr, gnutls_deinit) {
  gnutls_session_t session = nullptr;
  if (gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
    throw std::bad_alloc();
  }
  session_.reset(session);
  int code = gnutls_set_default_priority_append(session, kVersions, nullptr, 0);
  if (code >= 0) {
    code = gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials_.get());
  }
  if (code >= 0 && !is_ip_address(host)) {
    code = gnutls_server_name_set(session, GNUTLS_NAME_DNS, host.data(), host.size());
  }
  if (code < 0) fail(Code::kUnavailable, "TLS: %s", gnutls_strerror(code));
  gnutls_session_set_verify_cert(session, host_.c_str(), 0);  // keeps the pointer
  gnutls_transport_set_int(session, fd);
}

TlsSession::Handshake TlsSession::handshake(std::string* why) {
  int code;
  do {
    code = gnutls_handshake(session_.get());
  } while (code < 0 && code != GNUTLS_E_AGAIN && gnutls_error_is_fatal(code) == 0);
  if (code == 0) return Handshake::kDone;
  if (code == GNUTLS_E_AGAIN) {
    return gnutls_record_get_direction(session_.get()) == 0 ? Handshake::kWaitsToRead
                                                            : Handshake::kWaitsToWrite;
  }
  *why = reason(code);
  return Handshake::kFailed;
}

ptrdiff_t TlsSession::send(const char* data, size_t bytes, std::string* why) {
  // GnuTLS keeps the record that the socket did not take.
  const ptrdiff_t sent = sending_ ? gnutls_record_send(session_.get(), nullptr, 0)
                                  : gnutls_record_send(session_.get(), data, bytes);
  sending_ = would_wait(sent);
  if (sending_) return 0;
  if (sent < 0) *why = reason(static_cast<int>(sent));
  return sent < 0 ? -1 : sent;
}

ptrdiff_t TlsSession::receive(char* data, size_t bytes, std::string* why) {
  ptrdiff_t got;
  do {
    got = gnutls_record_recv(session_.get(), data, bytes);
  } while (got < 0 && !would_wait(got) && gnutls_error_is_fatal(static_cast<int>(got)) == 0);
  if (got > 0) return got;
  if (would_wait(got)) return 0;
  const bool is_end = got == 0 || got == GNUTLS_E_PREMATURE_TERMINATION;
  *why = is_end ? "the connection was closed" : reason(static_cast<int>(got));
  return -1;
}

bool TlsSession::has_input() const { return gnutls_record_check_pending(session_.get()) != 0; }

std::string TlsSession::reason(int error) const {
  std::string text = gnutls_strerror(error);
  if (error == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR) {
    gnutls_datum_t details = {nullptr, 0};
    const unsigned status = gnutls_session_get_verify_cert_status(session_.get());
    if (gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &details, 0) >= 0) {
      text.assign(reinterpret_cast<const char*>(details.data), details.size);
      gnutls_free(details.data);
      text.erase(text.find_last_not_of(std::string(" \0", 2)) + 1);
    }
  } else if (error == GNUTLS_E_FATAL_ALERT_RECEIVED) {
    const char* alert = gnutls_alert_get_name(gnutls_alert_get(session_.get()));
    if (alert != nullptr) text = std::string("the node says: ") + alert;
  } else if (error == GNUTLS_E_PREMATURE_TERMINATION) {
    text = "the connection was closed";
  }
  return "TLS: " + text;
}

}  // namespace hotrow
