#include "crypto/keys.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/human.h"
#include "base/log.h"
#include "base/os_error.h"
#include "crypto/hash.h"

namespace loom::crypto {
namespace {

constexpr std::size_t kMaxKeyFile = 16 * 1024;
constexpr std::string_view kSignaturePrefix = "loom-signature-1";

/// DER SubjectPublicKeyInfo of Ed25519 up to the key itself (RFC 8410).
constexpr std::array<unsigned char, 12> kSpkiPrefix = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                                       0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};

const unsigned char* Raw(const std::byte* p) { return reinterpret_cast<const unsigned char*>(p); }
unsigned char* Raw(std::byte* p) { return reinterpret_cast<unsigned char*>(p); }

struct PkeyFree {
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};
struct MdFree {
  void operator()(EVP_MD_CTX* p) const { EVP_MD_CTX_free(p); }
};
struct BioFree {
  void operator()(BIO* p) const { BIO_free(p); }
};
using Pkey = std::unique_ptr<EVP_PKEY, PkeyFree>;
using MdCtx = std::unique_ptr<EVP_MD_CTX, MdFree>;
using Bio = std::unique_ptr<BIO, BioFree>;

/// What is signed: prefix, length of the domain, domain, message; no two pairs give the same bytes.
Bytes SignedBytes(std::string_view domain, ByteView message) {
  LOOM_CHECK(domain.size() <= 255);
  Bytes out;
  out.reserve(kSignaturePrefix.size() + 1 + domain.size() + message.size());
  const auto add = [&out](ByteView bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); };
  add(AsBytes(kSignaturePrefix));
  out.push_back(static_cast<std::byte>(domain.size()));
  add(AsBytes(domain));
  add(message);
  return out;
}

int NoPassphrase(char*, int, int, void*) { return 0; }

Error FileError(std::string_view what, const std::filesystem::path& path) {
  return OsError(errno, fmt::format("cannot {} {}", what, path.string()));
}

Status WriteNew(const std::filesystem::path& path, std::string_view text) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.fd < 0) return FileError("create", path);
  while (!text.empty()) {
    const ssize_t n = ::write(file.fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return FileError("write", path);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fchmod(file.fd, 0600) != 0 || ::fsync(file.fd) != 0) return FileError("sync", path);
  return {};
}

}  // namespace

struct SigningKey::State {
  Pkey pkey;
  PublicKey public_key;
  PeerId id;
  Seed seed;
  ~State() { OPENSSL_cleanse(seed.bytes.data(), seed.bytes.size()); }
};

PeerId PeerIdOf(const PublicKey& key) {
  std::array<std::byte, kSpkiPrefix.size() + 32> spki{};
  std::memcpy(spki.data(), kSpkiPrefix.data(), kSpkiPrefix.size());
  std::memcpy(spki.data() + kSpkiPrefix.size(), key.bytes.data(), key.bytes.size());
  return PeerId{Sha256(spki).bytes};
}

void RandomBytes(MutableByteView out) {
  LOOM_CHECK(out.size() <= INT32_MAX);
  LOOM_CHECK(RAND_bytes(Raw(out.data()), static_cast<int>(out.size())) == 1,
             "the operating system gives no random bytes");
}

SigningKey SigningKey::Generate() {
  Seed seed;
  RandomBytes(seed.bytes);
  return FromSeed(seed);
}

SigningKey SigningKey::FromSeed(const Seed& seed) {
  auto state = std::make_shared<State>();
  state->seed = seed;
  state->pkey.reset(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, Raw(seed.bytes.data()),
                                                 seed.bytes.size()));
  std::size_t size = state->public_key.bytes.size();
  LOOM_CHECK(state->pkey &&
             EVP_PKEY_get_raw_public_key(state->pkey.get(), Raw(state->public_key.bytes.data()),
                                         &size) == 1);
  state->id = PeerIdOf(state->public_key);
  return SigningKey(std::move(state));
}

Result<SigningKey> SigningKey::FromSeedBytes(ByteView bytes) {
  LOOM_ASSIGN(const Seed seed, Seed::FromBytes(bytes));
  return FromSeed(seed);
}

Result<SigningKey> SigningKey::Load(const std::filesystem::path& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) {
    if (errno == ENOENT) {
      return MakeError(Code::kNotFound, fmt::format("no key file {}", path.string()));
    }
    return FileError("open the key file", path);
  }
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) return FileError("stat", path);
  if (S_ISDIR(info.st_mode)) {
    return MakeError(Code::kInvalid, fmt::format("{} is a folder, not a key file", path.string()),
                     "name the file in it");
  }
  if ((info.st_mode & 077) != 0) {
    Log(LogLevel::kWarn, "keys", "{} can be read by others; run: chmod 600 {}", path.string(),
        ShellWord(path.string()));
  }
  std::string text(kMaxKeyFile, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(file.fd, text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("read the key file", path);
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  text.resize(size);
  if (size == 32) return FromSeedBytes(AsBytes(text));
  if (size == 65 && text.back() == '\n') text.pop_back();
  Seed seed;
  if (ParseHex(text, seed.bytes)) return FromSeed(seed);
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  const Pkey pkey(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  std::size_t seed_size = seed.bytes.size();
  const bool good =
      pkey && EVP_PKEY_get_base_id(pkey.get()) == EVP_PKEY_ED25519 &&
      EVP_PKEY_get_raw_private_key(pkey.get(), Raw(seed.bytes.data()), &seed_size) == 1;
  OPENSSL_cleanse(text.data(), text.size());
  if (!good) {
    return MakeError(Code::kInvalid,
                     fmt::format("{} ({} bytes) holds no Ed25519 private key", path.string(), size),
                     "a key file is PEM without a pass-phrase, 64 hex digits or 32 raw bytes");
  }
  return FromSeed(seed);
}

Status SigningKey::Save(const std::filesystem::path& path) const {
  if (std::error_code ec; std::filesystem::exists(path, ec)) {
    return MakeError(Code::kConflict, fmt::format("{} exists already", path.string()),
                     "move the old key away first; a lost key is a lost identity");
  }
  const Bio bio(BIO_new(BIO_s_mem()));
  LOOM_CHECK(bio && PEM_write_bio_PKCS8PrivateKey(bio.get(), state_->pkey.get(), nullptr, nullptr,
                                                  0, nullptr, nullptr) == 1);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  std::filesystem::path aside = path;
  aside += ".new";
  ::unlink(aside.c_str());
  if (Status written = WriteNew(aside, {text, static_cast<std::size_t>(size)}); !written) {
    ::unlink(aside.c_str());
    return written;
  }
  OPENSSL_cleanse(text, static_cast<std::size_t>(size));
  if (::rename(aside.c_str(), path.c_str()) != 0) return FileError("rename into place", path);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  Fd dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.fd < 0 || ::fsync(dir.fd) != 0) return FileError("sync the folder", folder);
  return {};
}

const PublicKey& SigningKey::public_key() const { return state_->public_key; }
PeerId SigningKey::id() const { return state_->id; }
const Seed& SigningKey::seed() const { return state_->seed; }

Signature SigningKey::Sign(std::string_view domain, ByteView message) const {
  const Bytes input = SignedBytes(domain, message);
  const MdCtx ctx(EVP_MD_CTX_new());
  Signature out;
  std::size_t size = out.bytes.size();
  LOOM_CHECK(ctx &&
             EVP_DigestSignInit(ctx.get(), nullptr, nullptr, nullptr, state_->pkey.get()) == 1 &&
             EVP_DigestSign(ctx.get(), Raw(out.bytes.data()), &size, Raw(input.data()),
                            input.size()) == 1);
  return out;
}

bool Verify(const PublicKey& key, std::string_view domain, ByteView message,
            const Signature& signature) {
  const Pkey pkey(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Raw(key.bytes.data()),
                                              key.bytes.size()));
  const MdCtx ctx(EVP_MD_CTX_new());
  if (!pkey || !ctx || domain.size() > 255) return false;
  const Bytes input = SignedBytes(domain, message);
  return EVP_DigestVerifyInit(ctx.get(), nullptr, nullptr, nullptr, pkey.get()) == 1 &&
         EVP_DigestVerify(ctx.get(), Raw(signature.bytes.data()), signature.bytes.size(),
                          Raw(input.data()), input.size()) == 1;
}

}  // namespace loom::crypto
