//! Issuers of tokens: what makes one valid, with upstream's texts.

use std::sync::Arc;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::webhook;
use rustls::ClientConfig;

use super::expressions::Expression;
use super::rules::{self, Mapping, Rule, Uses};
use super::written::{Issuer, Jwt};
use crate::remote;

/// The algorithms of signatures that an issuer may use, sorted. Neither `none` nor a code with a secret is one, and for ES512
/// there is no implementation.
pub const ALGORITHMS: [&str; 8] = [
    "ES256", "ES384", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
];
const MOST_ISSUERS: usize = 64;
const MATCH_ANY: &str = "MatchAny";

/// An issuer of tokens, and whom its tokens prove. Of a valid configuration.
#[derive(Debug)]
pub struct TokenIssuer {
    /// The claim `iss` of its tokens.
    pub(crate) url: String,
    /// Where its discovery document is, if not at its URL.
    pub(crate) discovery_url: String,
    /// For connections to it.
    pub(crate) tls: Arc<ClientConfig>,
    /// Tokens are for one of these.
    pub(crate) audiences: Vec<String>,
    /// Of the signatures that are accepted.
    pub(crate) algorithms: Vec<&'static str>,
    pub(crate) username: Mapping,
    pub(crate) groups: Option<Mapping>,
    pub(crate) uid: Option<Mapping>,
    /// Keys with their values.
    pub(crate) extra: Vec<(String, Expression)>,
    /// Claims with the values that they must have.
    pub(crate) required: Vec<(String, String)>,
    pub(crate) claim_rules: Vec<Rule>,
    pub(crate) user_rules: Vec<Rule>,
}

/// The issuers of a configuration. `own` are the issuers of service-account tokens, which no other may claim to be.
///
/// # Errors
/// Upstream's text if one of them is not valid.
pub(super) fn issuers(
    written: Vec<Jwt>,
    own: &[String],
    algorithms: &[&'static str],
) -> Result<Vec<Arc<TokenIssuer>>, ErrorList> {
    let path = Path::new("jwt");
    let mut errors = ErrorList::new();
    if written.len() > MOST_ISSUERS {
        errors.push(Error::too_many(&path, written.len(), MOST_ISSUERS));
        return Err(errors);
    }
    let (mut urls, mut discovery_urls) = (Vec::new(), Vec::new());
    let mut issuers = Vec::new();
    for (index, jwt) in written.into_iter().enumerate() {
        let path = path.index(index);
        let at = path.child("issuer");
        let (url, discovery_url) = (jwt.issuer.url.clone(), jwt.issuer.discovery_url.clone());
        issuers.extend(issuer(jwt, &path, own, algorithms, &mut errors));
        if urls.contains(&url) {
            errors.push(Error::duplicate(&at.child("url"), &url));
        }
        urls.push(url);
        if discovery_urls.contains(&discovery_url) {
            errors.push(Error::duplicate(&at.child("discoveryURL"), &discovery_url));
        }
        if !discovery_url.is_empty() {
            discovery_urls.push(discovery_url);
        }
    }
    match errors.is_empty() {
        true => Ok(issuers.into_iter().map(Arc::new).collect()),
        false => Err(errors),
    }
}

/// None if there are errors.
fn issuer(
    jwt: Jwt,
    path: &Path,
    own: &[String],
    algorithms: &[&'static str],
    errors: &mut ErrorList,
) -> Option<TokenIssuer> {
    let Jwt {
        issuer,
        claim_validation_rules,
        claim_mappings: mappings,
        user_validation_rules,
    } = jwt;
    let tls = check_issuer(&issuer, own, &path.child("issuer"), errors);
    let mut uses = Uses::default();
    let at = path.child("claimValidationRules");
    let (required, claim_rules) =
        rules::claim_rules(claim_validation_rules, &mut uses, &at, errors);
    let path_of_mappings = path.child("claimMappings");
    let at = |name: &str| path_of_mappings.child(name);
    let email_at = at("username").child("expression");
    let text = mappings.username.expression.clone();
    let username = rules::prefixed(mappings.username, true, &at("username"), errors);
    if let Some((_, Some(of_username))) = &username {
        uses.email = of_username.email;
        uses.email_verified |= of_username.email_verified;
    }
    let groups = rules::prefixed(mappings.groups, false, &at("groups"), errors);
    let uid = rules::uid(mappings.uid, &at("uid"), errors);
    let extra = rules::extra(mappings.extra, &mut uses, &at("extra"), errors);
    if uses.email && !uses.email_verified {
        let detail = "claims.email_verified must be used in claimMappings.username.expression or \
                      claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used \
                      in claimMappings.username.expression";
        errors.push(Error::invalid(&email_at, text, detail));
    }
    let at = path.child("userValidationRules");
    let user_rules = rules::user_rules(user_validation_rules, &at, errors);
    Some(TokenIssuer {
        url: issuer.url,
        discovery_url: issuer.discovery_url,
        tls: tls?,
        audiences: issuer.audiences,
        algorithms: algorithms.to_vec(),
        username: username?.0,
        groups: groups.map(|it| it.0),
        uid,
        extra,
        required,
        claim_rules,
        user_rules,
    })
}

/// Checks where an issuer is and for whom its tokens are. The settings of connections to it, if they can be made.
fn check_issuer(
    issuer: &Issuer,
    own: &[String],
    path: &Path,
    errors: &mut ErrorList,
) -> Option<Arc<ClientConfig>> {
    let (url, discovery_url) = (issuer.url.as_str(), issuer.discovery_url.as_str());
    let at = path.child("url");
    match url {
        "" => errors.push(Error::required(&at, "")),
        url => check_url(url, own, &at, errors),
    }
    if !discovery_url.is_empty() {
        let at = path.child("discoveryURL");
        let bare = |url: &str| url.trim_end_matches('/').to_owned();
        if !url.is_empty() && bare(url) == bare(discovery_url) {
            let detail = "discoveryURL must be different from URL";
            errors.push(Error::invalid(&at, discovery_url, detail));
        }
        // It is no issuer, so it may be at the server's own URL.
        check_url(discovery_url, &[], &at, errors);
    }
    check_audiences(issuer, path, errors);
    let tls = remote::tls(issuer.certificate_authority.as_bytes(), None);
    if tls.is_err() {
        let detail = "data does not contain any valid RSA or ECDSA certificates";
        let at = path.child("certificateAuthority");
        errors.push(Error::invalid(&at, "<omitted>", detail));
    }
    let selector = issuer.egress_selector_type.as_str();
    let at = path.child("egressSelectorType");
    match selector {
        "" => {}
        "controlplane" | "cluster" => {
            let detail =
                "egress lookup required: this server has no configuration of egress selectors";
            errors.push(Error::invalid(&at, selector, detail));
        }
        _ => {
            let detail = "egress selector must be either controlplane or cluster";
            errors.push(Error::invalid(&at, selector, detail));
        }
    }
    tls.ok()
}

fn check_url(url: &str, own: &[String], path: &Path, errors: &mut ErrorList) {
    if own.iter().any(|it| it == url) {
        let mut own = own.to_vec();
        own.sort_unstable();
        let detail = format!(
            "URL must not overlap with disallowed issuers: [{}]",
            own.join(" ")
        );
        errors.push(Error::invalid(path, url, detail));
    }
    if let Err(error) = webhook::parses(url) {
        errors.push(Error::invalid(path, url, error));
        return;
    }
    let mut refuse = |detail: &str| errors.push(Error::invalid(path, url, detail));
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once(':').unwrap_or(("", rest));
    if !scheme.eq_ignore_ascii_case("https") {
        refuse("URL scheme must be https");
    }
    let authority = rest
        .strip_prefix("//")
        .unwrap_or_default()
        .split('/')
        .next();
    if authority.unwrap_or_default().contains('@') {
        refuse("URL must not contain a username or password");
    }
    if !query.is_empty() {
        refuse("URL must not contain a query");
    }
    if !fragment.is_empty() {
        refuse("URL must not contain a fragment");
    }
}

fn check_audiences(issuer: &Issuer, path: &Path, errors: &mut ErrorList) {
    let (audiences, policy) = (&issuer.audiences, issuer.audience_match_policy.as_str());
    let at = path.child("audiences");
    if audiences.is_empty() {
        errors.push(Error::required(
            &at,
            format!("at least one {at} is required"),
        ));
        return;
    }
    for (index, audience) in audiences.iter().enumerate() {
        let at = at.index(index);
        if audience.is_empty() {
            errors.push(Error::required(&at, ""));
        }
        if audiences[..index].contains(audience) {
            errors.push(Error::duplicate(&at, audience));
        }
    }
    let detail = match (audiences.len(), policy) {
        (_, MATCH_ANY) | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    let at = path.child("audienceMatchPolicy");
    errors.push(Error::invalid(&at, policy, detail));
}
