#include "net/tls.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/auxv.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "crypto/certificate.h"

namespace loom::net {
namespace {

constexpr long kMaxCertificateBytes = 16 * 1024;

/// Whether this processor does AES-GCM in hardware: faster than ChaCha20 then, else much slower.
bool HasAes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#elif defined(__aarch64__)
  constexpr unsigned long kAesAndPmull = (1UL << 3) | (1UL << 4);  // of AT_HWCAP
  return (::getauxval(AT_HWCAP) & kAesAndPmull) == kAesAndPmull;
#else
  return false;
#endif
}

struct Free {
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(BIO_METHOD* p) const { BIO_meth_free(p); }
};

/// The socket as OpenSSL sees it: writes gather in `out`, reads are served from `in`. OpenSSL could
/// read ahead by itself, but moves what is left for each record.
struct Socket {
  int fd = -1;
  Bytes out;
  std::size_t sent = 0;  ///< of `out`
  std::unique_ptr<std::byte[]> in;
  std::size_t in_begin = 0, in_end = 0;
  std::size_t allowance = 0;  ///< bytes that may still be taken
  bool starved = false;
  bool ended = false;
  int error = 0;  ///< of the last system call that failed for good
  std::uint64_t read = 0, written = 0;

  std::size_t unsent() const { return out.size() - sent; }
};

int TakeFromSocket(BIO* bio, char* to, int size) {
  auto& socket = *static_cast<Socket*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (socket.in_begin == socket.in_end) {
    const std::size_t most = std::min(TlsStream::kReadAhead, socket.allowance);
    if (most == 0) {
      socket.starved = true;
      BIO_set_retry_read(bio);
      return -1;
    }
    if (socket.in == nullptr)
      socket.in = std::make_unique_for_overwrite<std::byte[]>(TlsStream::kReadAhead);
    const ssize_t n = ::recv(socket.fd, socket.in.get(), most, 0);
    if (n <= 0) {
      if (n == 0) {
        socket.ended = true;
      } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
        BIO_set_retry_read(bio);
      } else {
        socket.error = errno;
      }
      return static_cast<int>(n);
    }
    socket.in_begin = 0;
    socket.in_end = static_cast<std::size_t>(n);
    socket.allowance -= socket.in_end;
    socket.read += socket.in_end;
  }
  const std::size_t n = std::min(static_cast<std::size_t>(size), socket.in_end - socket.in_begin);
  std::memcpy(to, socket.in.get() + socket.in_begin, n);
  socket.in_begin += n;
  return static_cast<int>(n);
}

int GatherForSocket(BIO* bio, const char* from, int size) {
  auto& socket = *static_cast<Socket*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ByteView bytes = AsBytes(std::string_view(from, static_cast<std::size_t>(size)));
  if (socket.unsent() + bytes.size() > TlsStream::kMaxUnsent) {
    socket.error = ENOBUFS;
    return -1;
  }
  socket.out.insert(socket.out.end(), bytes.begin(), bytes.end());
  return size;
}

long ControlSocket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return static_cast<Socket*>(BIO_get_data(bio))->ended ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;  // the stream itself flushes
}

const BIO_METHOD* SocketMethod() {
  static const std::unique_ptr<BIO_METHOD, Free> method = [] {
    std::unique_ptr<BIO_METHOD, Free> made(
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "loom socket"));
    LOOM_CHECK(made != nullptr && BIO_meth_set_read(made.get(), TakeFromSocket) == 1 &&
               BIO_meth_set_write(made.get(), GatherForSocket) == 1 &&
               BIO_meth_set_ctrl(made.get(), ControlSocket) == 1);
    return made;
  }();
  return method.get();
}

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

std::string TlsLibrary() {
  const std::string text = OpenSSL_version(OPENSSL_VERSION);  // "OpenSSL 3.0.17 1 Jul 2025"
  return text.substr(0, text.find(' ', text.find(' ') + 1));
}

TlsContext::TlsContext(const crypto::SigningKey& key) : state_(std::make_unique<State>()) {
  state_->ctx.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* ctx = state_->ctx.get();
  LOOM_CHECK(ctx != nullptr);
  constexpr const char* kAesFirst =
      "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384";
  constexpr const char* kChaChaFirst =
      "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384";
  const Bytes der = crypto::MakeCertificate(key);
  const std::unique_ptr<EVP_PKEY, Free> pkey(EVP_PKEY_new_raw_private_key(
      EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(key.seed().bytes.data()),
      key.seed().bytes.size()));
  LOOM_CHECK(SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
             SSL_CTX_set1_sigalgs_list(ctx, "ed25519") == 1 &&
             SSL_CTX_set_ciphersuites(ctx, HasAes() ? kAesFirst : kChaChaFirst) == 1 &&
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
  // ChaCha20 when either side is without hardware for AES.
  SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_COMPRESSION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
}
TlsContext::~TlsContext() = default;

struct TlsStream::State {
  PeerCheck check;
  Socket socket;
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
        error = socket.error == 0 ? "closed by the other side" : std::strerror(socket.error);
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
  state_->socket.fd = fd;
  SSL* ssl = state_->ssl.get();
  BIO* bio = BIO_new(SocketMethod());
  LOOM_CHECK(ssl != nullptr && bio != nullptr);
  BIO_set_data(bio, &state_->socket);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
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
  state_->socket.allowance = kReadAhead;
  const Io io = state_->Outcome(SSL_do_handshake(state_->ssl.get()));
  const Io flushed = Flush();  // an alert, too
  return io == Io::kDone || (io == Io::kWantRead && flushed == Io::kWantWrite) ? flushed : io;
}

TlsStream::Io TlsStream::Read(MutableByteView out, std::size_t allowance, std::size_t& n) {
  ERR_clear_error();
  state_->socket.allowance = allowance;
  state_->socket.starved = false;
  n = 0;
  const Io io = state_->Outcome(SSL_read_ex(state_->ssl.get(), out.data(), out.size(), &n));
  if (io == Io::kFailed) (void)Flush();  // the alert
  return io;
}

bool TlsStream::starved() const { return state_->socket.starved; }

TlsStream::Io TlsStream::Write(ByteView in) {
  ERR_clear_error();
  std::size_t n = 0;
  return state_->Outcome(SSL_write_ex(state_->ssl.get(), in.data(), in.size(), &n));
}

TlsStream::Io TlsStream::Flush() {
  Socket& socket = state_->socket;
  while (socket.unsent() > 0) {
    const ssize_t n =
        ::send(socket.fd, socket.out.data() + socket.sent, socket.unsent(), MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Io::kWantWrite;
      state_->error = std::strerror(errno);
      return Io::kClosed;
    }
    socket.sent += static_cast<std::size_t>(n);
    socket.written += static_cast<std::uint64_t>(n);
  }
  socket.out.clear();
  socket.sent = 0;
  return Io::kDone;
}

std::size_t TlsStream::unsent() const { return state_->socket.unsent(); }

void TlsStream::CloseNotify() {
  ERR_clear_error();
  if (SSL_is_init_finished(state_->ssl.get()) == 1) SSL_shutdown(state_->ssl.get());
  ERR_clear_error();
  (void)Flush();
}

const crypto::PublicKey& TlsStream::peer_key() const { return state_->check.key; }
std::uint64_t TlsStream::wire_read() const { return state_->socket.read; }
std::uint64_t TlsStream::wire_written() const { return state_->socket.written; }
TlsStream::Failure TlsStream::failure() const { return state_->failure; }
const std::string& TlsStream::error() const { return state_->error; }

}  // namespace loom::net
