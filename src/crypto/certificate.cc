#include "crypto/certificate.h"

#include <openssl/asn1.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

namespace loom::crypto {
namespace {

constexpr std::size_t kMaxCertificate = 16 * 1024;

struct Free {
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509* p) const { X509_free(p); }
};

}  // namespace

Bytes MakeCertificate(const SigningKey& key) {
  const std::unique_ptr<EVP_PKEY, Free> pkey(EVP_PKEY_new_raw_private_key(
      EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(key.seed().bytes.data()),
      key.seed().bytes.size()));
  const std::unique_ptr<X509, Free> cert(X509_new());
  LOOM_CHECK(pkey && cert);
  X509_set_version(cert.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), 1);
  // Validity is fixed and never looked at: correctness must not depend on wall clocks.
  ASN1_TIME_set_string_X509(X509_getm_notBefore(cert.get()), "19700101000000Z");
  ASN1_TIME_set_string_X509(X509_getm_notAfter(cert.get()), "99991231235959Z");
  X509_set_pubkey(cert.get(), pkey.get());
  X509_NAME* name = X509_get_subject_name(cert.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("loom"), -1, -1, 0);
  X509_set_issuer_name(cert.get(), name);
  LOOM_CHECK(X509_sign(cert.get(), pkey.get(), nullptr) > 0);
  unsigned char* der = nullptr;
  const int size = i2d_X509(cert.get(), &der);
  LOOM_CHECK(size > 0);
  const auto* bytes = reinterpret_cast<const std::byte*>(der);
  Bytes out(bytes, bytes + size);
  OPENSSL_free(der);
  return out;
}

Result<PublicKey> CertificateKey(ByteView der) {
  if (der.size() > kMaxCertificate) {
    return MakeError(Code::kInvalid, fmt::format("a certificate of {} bytes; the limit is {}",
                                                 der.size(), kMaxCertificate));
  }
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  const std::unique_ptr<X509, Free> cert(d2i_X509(nullptr, &at, static_cast<long>(der.size())));
  const EVP_PKEY* pkey = cert ? X509_get0_pubkey(cert.get()) : nullptr;
  PublicKey key;
  std::size_t size = key.bytes.size();
  if (pkey == nullptr || EVP_PKEY_get_base_id(pkey) != EVP_PKEY_ED25519 ||
      EVP_PKEY_get_raw_public_key(pkey, reinterpret_cast<unsigned char*>(key.bytes.data()),
                                  &size) != 1) {
    return MakeError(Code::kInvalid, "the certificate carries no Ed25519 key");
  }
  return key;
}

}  // namespace loom::crypto
