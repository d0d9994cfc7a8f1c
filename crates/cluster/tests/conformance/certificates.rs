//! An authority and what it signs, and a user of etcd: made for one test.

use cluster::EtcdOptions;
use etcd_client::{Client, ConnectOptions, OpenSslClientConfig, PermissionType};
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder};
use std::path::Path;

pub const USER: &str = "root";
pub const PASSWORD: &str = "a password for this test";

/// A certificate and its key.
#[derive(Clone)]
struct Signed {
    certificate: X509,
    key: PKey<Private>,
}

impl Signed {
    /// By `by`, or by itself: an authority.
    fn new(number: u32, by: Option<&Signed>) -> Self {
        let curve = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("known");
        let key = PKey::from_ec_key(EcKey::generate(&curve).expect("random")).expect("a key");
        let mut name = X509NameBuilder::new().expect("memory");
        name.append_entry_by_nid(Nid::ORGANIZATIONNAME, &format!("test {number}")).expect("a name");
        let name = name.build();
        let mut new = X509::builder().expect("memory");
        new.set_version(2).expect("3");
        let serial = BigNum::from_u32(number).and_then(|number| number.to_asn1_integer()).expect("a number");
        new.set_serial_number(&serial).expect("a number");
        new.set_subject_name(&name).expect("a name");
        new.set_issuer_name(by.map_or(&*name, |by| by.certificate.subject_name())).expect("a name");
        new.set_pubkey(&key).expect("a key");
        new.set_not_before(&Asn1Time::from_unix(0).expect("a time")).expect("a time");
        new.set_not_after(&Asn1Time::days_from_now(2).expect("a time")).expect("a time");
        if by.is_none() {
            new.append_extension(BasicConstraints::new().critical().ca().build().expect("known")).expect("known");
        } else {
            let usage = ExtendedKeyUsage::new().server_auth().client_auth().build().expect("known");
            new.append_extension(usage).expect("known");
            let context = new.x509v3_context(by.map(|by| &*by.certificate), None);
            let place = SubjectAlternativeName::new().ip("127.0.0.1").build(&context).expect("an address");
            new.append_extension(place).expect("known");
        }
        new.sign(by.map_or(&key, |by| &by.key), MessageDigest::sha256()).expect("signed");
        Self { certificate: new.build(), key }
    }

    fn pem(&self) -> Vec<u8> {
        self.certificate.to_pem().expect("PEM")
    }

    fn key_pem(&self) -> Vec<u8> {
        self.key.private_key_to_pem_pkcs8().expect("PEM")
    }
}

/// Whom a test's etcd and its clients trust.
#[derive(Clone)]
pub struct Trust {
    authority: Signed,
    member: Signed,
    client: Signed,
    stranger: Signed,
}

impl Trust {
    pub fn new() -> Self {
        let authority = Signed::new(1, None);
        let [member, client] = [2, 3].map(|number| Signed::new(number, Some(&authority)));
        Self { authority, member, client, stranger: Signed::new(4, None) }
    }

    /// What etcd is started with.
    pub fn write_into(&self, directory: &Path) {
        let files = [
            ("authority.pem", self.authority.pem()),
            ("member.pem", self.member.pem()),
            ("member.key", self.member.key_pem()),
        ];
        files.into_iter().for_each(|(name, bytes)| std::fs::write(directory.join(name), bytes).expect("room"));
    }

    /// The one that matters comes last.
    pub fn authorities_pem(&self) -> Vec<u8> {
        [self.stranger_pem(), self.authority.pem()].concat()
    }

    /// Of one that has signed nothing.
    pub fn stranger_pem(&self) -> Vec<u8> {
        self.stranger.pem()
    }

    pub fn identity_pem(&self) -> (Vec<u8>, Vec<u8>) {
        (self.client.pem(), self.client.key_pem())
    }
}

/// Makes etcd ask for the user's password from now on.
pub fn set_password(options: &EtcdOptions) {
    with_client(options, false, async |client| {
        let mut auth = client.auth_client();
        auth.user_add(USER, PASSWORD, None).await?;
        auth.role_add(USER).await?;
        auth.user_grant_role(USER, USER).await?;
        auth.auth_enable().await.map(drop)
    });
}

/// Another user, who may read something.
pub fn add_user(options: &EtcdOptions, name: &str) {
    with_client(options, true, async |client| {
        let mut auth = client.auth_client();
        auth.user_add(name, PASSWORD, None).await?;
        auth.role_add(name).await?;
        let may = etcd_client::Permission::new(PermissionType::Read, "there");
        auth.role_grant_permission(name, may).await?;
        auth.user_grant_role(name, name).await.map(drop)
    });
}

fn with_client(options: &EtcdOptions, by_user: bool, work: impl AsyncFnOnce(Client) -> Result<(), etcd_client::Error>) {
    let (identity, authorities) = (options.identity_pem.clone().expect("one"), options.authority_pem.clone());
    let tls = OpenSslClientConfig::default().client_cert_pem_and_key(&identity.0, &identity.1).manually(|builder| {
        for authority in X509::stack_from_pem(&authorities.expect("some"))? {
            builder.cert_store_mut().add_cert(authority)?;
        }
        Ok(())
    });
    let mut connect = ConnectOptions::new().with_openssl_tls(tls);
    if by_user {
        connect = connect.with_user(USER, PASSWORD);
    }
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio.block_on(async {
        let client = Client::connect(&options.endpoints, Some(connect)).await.expect("it answers");
        work(client).await.expect("it is done");
    });
}
