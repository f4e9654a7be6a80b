//! The derive `Resource`: generates the kind of a type from its attribute, and the fields that it reads.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Data, DeriveInput, Error, Ident, LitStr, Result, Token, token};

use crate::{crd, fields};

/// Example of the attribute for error messages.
const EXAMPLE: &str = r#"#[resource(group = "example.com", version = "v1", kind = "Greeting")]"#;

/// Parsed attribute `#[resource]` of a type.
struct Kind {
    group: String,
    version: String,
    name: String,
    /// Root type that kube's derive makes of the spec.
    root: Option<Ident>,
}

/// Generates the implementations for a resource, or for the root of a spec that derives kube's `CustomResource`.
pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let own = attribute(input, "resource");
    let of_kube = attribute(input, "kube");
    match (own, of_kube) {
        (Some(attribute), _) => of_root(input, &Kind::parse(attribute)?),
        (None, Some(attribute)) => of_kube_spec(input, &Kind::parse(attribute)?),
        (None, None) => Err(Error::new_spanned(
            &input.ident,
            format!("{} is of no kind; name it: {EXAMPLE}", input.ident),
        )),
    }
}

fn attribute<'a>(input: &'a DeriveInput, name: &str) -> Option<&'a Attribute> {
    input.attrs.iter().find(|attribute| attribute.path().is_ident(name))
}

fn of_root(input: &DeriveInput, kind: &Kind) -> Result<TokenStream> {
    if !matches!(&input.data, Data::Struct(data) if matches!(data.fields, syn::Fields::Named(_))) {
        return Err(Error::new_spanned(
            &input.ident,
            format!(
                "{}: a resource is a struct with named fields, such as metadata and spec",
                input.ident
            ),
        ));
    }
    let name = &input.ident;
    let (generics, arguments, condition) = input.generics.split_for_impl();
    let definition = crd::expand(input, &kind.name)?;
    let kind = kind.tokens();
    let resource = quote! {
        #[automatically_derived]
        impl #generics ::pilothouse_plugin::Resource for #name #arguments #condition {
            const KIND: ::pilothouse_plugin::Kind = #kind;

            fn fields() -> ::std::vec::Vec<::std::string::String> {
                let mut fields = ::std::vec::Vec::new();
                <Self as ::pilothouse_plugin::Fields>::fields_at("", &mut fields);
                fields
            }
        }
    };
    let fields = fields::implementation(input, &fields::body(input, true)?);
    Ok(quote!(#resource #fields #definition))
}

/// Generates the implementations for a spec: its fields, and the kind of the root that kube's derive makes.
fn of_kube_spec(input: &DeriveInput, kind: &Kind) -> Result<TokenStream> {
    if let Some(attribute) = attribute(input, "crd") {
        return Err(Error::new_spanned(
            attribute,
            format!("{}: kube's derive makes the definition; remove #[crd]", input.ident),
        ));
    }
    let spec = &input.ident;
    let root = kind
        .root
        .clone()
        .unwrap_or_else(|| Ident::new(&kind.name, Span::call_site()));
    let kind = kind.tokens();
    let fields = fields::expand(input)?;
    Ok(quote! {
        #fields

        #[automatically_derived]
        impl ::pilothouse_plugin::Fields for #root {
            fn fields_at(path: &str, fields: &mut ::std::vec::Vec<::std::string::String>) {
                ::pilothouse_plugin::derive::child::<#spec>(path, ".spec", fields);
            }
        }

        #[automatically_derived]
        impl ::pilothouse_plugin::Resource for #root {
            const KIND: ::pilothouse_plugin::Kind = #kind;

            fn fields() -> ::std::vec::Vec<::std::string::String> {
                let mut fields = ::std::vec::Vec::new();
                <Self as ::pilothouse_plugin::Fields>::fields_at("", &mut fields);
                fields
            }
        }
    })
}

impl Kind {
    fn parse(attribute: &Attribute) -> Result<Self> {
        let is_own = attribute.path().is_ident("resource");
        let (mut group, mut version, mut kind, mut root) = (None, None, None, None);
        attribute.parse_nested_meta(|meta| {
            let member = if meta.path.is_ident("group") {
                &mut group
            } else if meta.path.is_ident("version") {
                &mut version
            } else if meta.path.is_ident("kind") {
                &mut kind
            } else if is_own {
                let given = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                let place = if crd::HAS.contains(&given.as_str()) {
                    format!("{given} belongs into #[crd({given} ...)]")
                } else {
                    format!("a resource has group, version and kind: {EXAMPLE}")
                };
                return Err(meta.error(format!("#[resource] has no {given} on a type; {place}")));
            } else if meta.path.is_ident("root") {
                &mut root
            } else {
                return pass_over(&meta);
            };
            let value = meta.value()?.parse::<LitStr>()?;
            if member.replace(value).is_some() {
                return Err(meta.error("it is given twice; remove one"));
            }
            Ok(())
        })?;
        let given = |member: Option<LitStr>, name: &str| {
            member.ok_or_else(|| Error::new_spanned(attribute, format!("{name} is missing; name the kind: {EXAMPLE}")))
        };
        let named = |member: Option<LitStr>, name: &str| match given(member, name)? {
            empty if empty.value().is_empty() => Err(Error::new_spanned(
                empty,
                format!("{name} is empty; name the kind: {EXAMPLE}"),
            )),
            text => Ok(text.value()),
        };
        Ok(Self {
            // The core group is empty.
            group: given(group, "group")?.value(),
            version: named(version, "version")?,
            name: named(kind, "kind")?,
            root: root.map(|root| root.parse()).transpose()?,
        })
    }

    fn tokens(&self) -> TokenStream {
        let Self {
            group,
            version,
            name,
            root: _,
        } = self;
        quote!(::pilothouse_plugin::Kind::new(#group, #version, #name))
    }
}

/// Skips a member that only kube's derive reads.
fn pass_over(meta: &ParseNestedMeta<'_>) -> Result<()> {
    if meta.input.peek(Token![=]) {
        meta.value()?.parse::<syn::Expr>()?;
    } else if meta.input.peek(token::Paren) {
        let content;
        syn::parenthesized!(content in meta.input);
        content.parse::<TokenStream>()?;
    }
    Ok(())
}
