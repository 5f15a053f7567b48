#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cerrno>
#include <cstring>

#include "crypto/certificate.h"

namespace loom::net {
namespace {

constexpr long kMaxCertificateBytes = 16 * 1024;

struct Free {
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509* p) const { X509_free(p); }
};

/// What the verify callback learns about the other side.
struct PeerCheck {
  std::optional<PeerId> expected;
  crypto::PublicKey key;
  PeerId id;
  bool wrong_pin = false;
};

int CheckPeer(X509_STORE_CTX* store, void*) {
  auto* ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* check = static_cast<PeerCheck*>(SSL_get_app_data(ssl));
  X509* cert = X509_STORE_CTX_get0_cert(store);
  const EVP_PKEY* pkey = cert != nullptr ? X509_get0_pubkey(cert) : nullptr;
  std::size_t size = check->key.bytes.size();
  X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
  if (pkey == nullptr || EVP_PKEY_get_base_id(pkey) != EVP_PKEY_ED25519 ||
      EVP_PKEY_get_raw_public_key(pkey, reinterpret_cast<unsigned char*>(check->key.bytes.data()),
                                  &size) != 1) {
    return 0;
  }
  check->id = crypto::PeerIdOf(check->key);
  if (check->expected && *check->expected != check->id) {
    check->wrong_pin = true;
    return 0;
  }
  X509_STORE_CTX_set_error(store, X509_V_OK);
  return 1;
}

}  // namespace

struct TlsContext::State {
  std::unique_ptr<SSL_CTX, Free> ctx;
};

TlsContext::TlsContext(const crypto::SigningKey& key) : state_(std::make_unique<State>()) {
  state_->ctx.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* ctx = state_->ctx.get();
  LOOM_CHECK(ctx != nullptr);
  const Bytes der = crypto::MakeCertificate(key);
  const std::unique_ptr<EVP_PKEY, Free> pkey(EVP_PKEY_new_raw_private_key(
      EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(key.seed().bytes.data()),
      key.seed().bytes.size()));
  LOOM_CHECK(SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
             SSL_CTX_set1_sigalgs_list(ctx, "ed25519") == 1 &&
             SSL_CTX_set_ciphersuites(ctx,
                                      "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:"
                                      "TLS_AES_256_GCM_SHA384") == 1 &&
             SSL_CTX_use_certificate_ASN1(ctx, static_cast<int>(der.size()),
                                          reinterpret_cast<const unsigned char*>(der.data())) ==
                 1 &&
             SSL_CTX_use_PrivateKey(ctx, pkey.get()) == 1);
  SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_cert_verify_callback(ctx, CheckPeer, nullptr);
  SSL_CTX_set_max_cert_list(ctx, kMaxCertificateBytes);
  SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(ctx, 0);
  SSL_CTX_set_max_early_data(ctx, 0);
  SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_COMPRESSION);
}
TlsContext::~TlsContext() = default;

struct TlsStream::State {
  PeerCheck check;
  std::unique_ptr<SSL, Free> ssl;
  Failure failure = Failure::kNone;
  std::string error;

  Io Outcome(int code) {
    switch (SSL_get_error(ssl.get(), code)) {
      case SSL_ERROR_NONE:
        return Io::kDone;
      case SSL_ERROR_WANT_READ:
        return Io::kWantRead;
      case SSL_ERROR_WANT_WRITE:
        return Io::kWantWrite;
      case SSL_ERROR_ZERO_RETURN:
        error = "closed by the other side";
        return Io::kClosed;
      case SSL_ERROR_SYSCALL:
        error = errno == 0 ? "closed by the other side" : std::strerror(errno);
        return Io::kClosed;
      default:
        Explain();
        return Io::kFailed;
    }
  }

  void Explain() {
    const unsigned long code = ERR_peek_error();
    failure = Failure::kOther;
    if (check.wrong_pin) {
      failure = Failure::kPin;
      error = fmt::format("expected peer {}, found {}", check.expected->Hex(), check.id.Hex());
      return;
    }
    switch (ERR_GET_REASON(code)) {
      case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
      case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        failure = Failure::kRejected;
        error = "the other side expected another identity than this one";
        return;
      case SSL_R_HTTP_REQUEST:
      case SSL_R_HTTPS_PROXY_REQUEST:
        failure = Failure::kNotTls;
        error = "it speaks plain HTTP";
        return;
      case SSL_R_WRONG_VERSION_NUMBER:
      case SSL_R_UNKNOWN_PROTOCOL:
      case SSL_R_UNSUPPORTED_PROTOCOL:
      case SSL_R_UNEXPECTED_MESSAGE:
      case SSL_R_BAD_RECORD_TYPE:
      case SSL_R_PACKET_LENGTH_TOO_LONG:
        failure = Failure::kNotTls;
        error = "it does not speak TLS 1.3";
        return;
      default:
        break;
    }
    const char* reason = ERR_reason_error_string(code);
    error = fmt::format("TLS: {}", reason != nullptr ? reason : "unknown error");
  }
};

TlsStream::TlsStream(const TlsContext& context, int fd, bool accepting,
                     std::optional<PeerId> expected)
    : state_(std::make_unique<State>()) {
  state_->check.expected = expected;
  state_->ssl.reset(SSL_new(context.state_->ctx.get()));
  SSL* ssl = state_->ssl.get();
  LOOM_CHECK(ssl != nullptr && SSL_set_fd(ssl, fd) == 1);
  SSL_set_app_data(ssl, &state_->check);
  if (accepting) {
    SSL_set_accept_state(ssl);
  } else {
    SSL_set_connect_state(ssl);
  }
}
TlsStream::~TlsStream() = default;

TlsStream::Io TlsStream::Handshake() {
  ERR_clear_error();
  errno = 0;
  return state_->Outcome(SSL_do_handshake(state_->ssl.get()));
}

TlsStream::Io TlsStream::Read(MutableByteView out, std::size_t& n) {
  ERR_clear_error();
  errno = 0;
  n = 0;
  return state_->Outcome(SSL_read_ex(state_->ssl.get(), out.data(), out.size(), &n));
}

TlsStream::Io TlsStream::Write(ByteView in, std::size_t& n) {
  ERR_clear_error();
  errno = 0;
  n = 0;
  return state_->Outcome(SSL_write_ex(state_->ssl.get(), in.data(), in.size(), &n));
}

void TlsStream::CloseNotify() {
  ERR_clear_error();
  if (SSL_is_init_finished(state_->ssl.get()) == 1) SSL_shutdown(state_->ssl.get());
  ERR_clear_error();
}

const crypto::PublicKey& TlsStream::peer_key() const { return state_->check.key; }
std::uint64_t TlsStream::wire_read() const {
  return BIO_number_read(SSL_get_rbio(state_->ssl.get()));
}
std::uint64_t TlsStream::wire_written() const {
  return BIO_number_written(SSL_get_rbio(state_->ssl.get()));
}
TlsStream::Failure TlsStream::failure() const { return state_->failure; }
const std::string& TlsStream::error() const { return state_->error; }

}  // namespace loom::net
