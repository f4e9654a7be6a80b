//! Generates the CustomResourceDefinition of a type from its attribute `#[crd]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Data, DeriveInput, Error, Expr, Field, Ident, Lit, LitInt, LitStr, Meta, Result, Type};

use crate::serde::{Container, Member};

/// Members of `#[crd]`.
pub const HAS: [&str; 11] = [
    "plural",
    "singular",
    "shortname",
    "category",
    "scope",
    "status",
    "scale",
    "printcolumn",
    "validation",
    "selectable",
    "filtered",
];

/// Members of `scale`, with their names in JSON. The API server requires the first of each.
const SCALE: [(&str, &str); 3] = [
    ("spec_replicas_path", "specReplicasPath"),
    ("status_replicas_path", "statusReplicasPath"),
    ("label_selector_path", "labelSelectorPath"),
];
const COLUMN: [(&str, &str); 5] = [
    ("name", "name"),
    ("type_", "type"),
    ("json_path", "jsonPath"),
    ("description", "description"),
    ("format", "format"),
];
const VALIDATION: [(&str, &str); 5] = [
    ("rule", "rule"),
    ("message", "message"),
    ("message_expression", "messageExpression"),
    ("field_path", "fieldPath"),
    ("reason", "reason"),
];

/// Parsed attribute `#[crd]`.
#[derive(Default)]
struct Definition {
    plural: Option<String>,
    singular: Option<String>,
    scope: Option<LitStr>,
    status: Option<Type>,
    /// Calls of the SDK's builder, in the order of the attribute.
    calls: Vec<TokenStream>,
}

/// Generates the implementation of `CustomResource`; nothing for a type without the attribute.
pub fn expand(input: &DeriveInput, kind: &str) -> Result<TokenStream> {
    let mut attributes = input
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("crd"))
        .peekable();
    if attributes.peek().is_none() {
        return Ok(TokenStream::new());
    }
    let mut definition = Definition::default();
    for attribute in attributes {
        if !matches!(attribute.meta, Meta::Path(_)) {
            attribute.parse_nested_meta(|meta| definition.read(&meta))?;
        }
    }
    let Definition {
        plural,
        singular,
        scope,
        status,
        calls,
    } = definition;
    let singular = singular.unwrap_or_else(|| kind.to_lowercase());
    let plural = plural.unwrap_or_else(|| format!("{singular}s"));
    let scope = scope_of(scope.as_ref())?;
    let status = status.map_or_else(
        || quote!(::pilothouse_plugin::crd::ConditionsOnly),
        |status| quote!(#status),
    );
    let description = description(&input.attrs);
    let members = members(input)?;
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl ::pilothouse_plugin::crd::CustomResource for #name {
            fn definition() -> ::pilothouse_plugin::crd::Definition {
                let kind = <Self as ::pilothouse_plugin::Resource>::KIND;
                ::pilothouse_plugin::crd::Definition::new(kind, #plural, #singular, #scope, #description)
                    #(#members)*
                    .status::<#status>()
                    #(#calls)*
            }
        }
    })
}

impl Definition {
    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let name = meta.path.require_ident()?.to_string();
        let text = || meta.value()?.parse::<LitStr>();
        match name.as_str() {
            "plural" => self.plural = Some(text()?.value()),
            "singular" => self.singular = Some(text()?.value()),
            "scope" => self.scope = Some(text()?),
            "status" => self.status = Some(meta.value()?.parse()?),
            "shortname" => self.name("shortNames", &text()?),
            "category" => self.name("categories", &text()?),
            "selectable" => {
                let path = text()?;
                self.calls.push(quote!(.selectable(#path)));
            }
            "filtered" => self.calls.push(quote!(.filtered())),
            "scale" => {
                let (members, _) = texts(meta, &SCALE, 2, false)?;
                self.calls.push(quote!(.scale(&[#members])));
            }
            "printcolumn" => {
                let (members, priority) = texts(meta, &COLUMN, 3, true)?;
                let priority = priority.map_or_else(
                    || quote!(::std::option::Option::None),
                    |priority| quote!(::std::option::Option::Some(#priority)),
                );
                self.calls.push(quote!(.column(&[#members], #priority)));
            }
            "validation" => {
                let (members, _) = texts(meta, &VALIDATION, 1, false)?;
                self.calls.push(quote!(.validation(&[#members])));
            }
            _ => {
                return Err(meta.error(format!("#[crd] has no {name}; it has {}", HAS.join(", "))));
            }
        }
        Ok(())
    }

    fn name(&mut self, list: &str, name: &LitStr) {
        self.calls.push(quote!(.name(#list, #name)));
    }
}

/// Returns the texts in parentheses as pairs, and the priority of a column. The first of the known ones are required.
fn texts(
    meta: &ParseNestedMeta<'_>,
    known: &[(&str, &str)],
    required: usize,
    has_priority: bool,
) -> Result<(TokenStream, Option<LitInt>)> {
    let of = meta.path.require_ident()?;
    let mut pairs = TokenStream::new();
    let mut given = Vec::new();
    let mut priority = None;
    meta.parse_nested_meta(|inner| {
        let name = inner.path.require_ident()?.to_string();
        if has_priority && name == "priority" {
            priority = Some(inner.value()?.parse()?);
            return Ok(());
        }
        let Some((_, json)) = known.iter().find(|(rust, _)| *rust == name) else {
            let names: Vec<_> = known.iter().map(|(rust, _)| *rust).collect();
            return Err(inner.error(format!("{of} has no {name}; it has {}", names.join(", "))));
        };
        let value: LitStr = inner.value()?.parse()?;
        pairs.extend(quote!((#json, #value),));
        given.push(name);
        Ok(())
    })?;
    if let Some((missing, _)) = known[..required]
        .iter()
        .find(|(rust, _)| !given.iter().any(|given| given == rust))
    {
        return Err(Error::new_spanned(
            of,
            format!("{of} lacks {missing}, which the API server demands"),
        ));
    }
    Ok((pairs, priority))
}

fn scope_of(scope: Option<&LitStr>) -> Result<&'static str> {
    match scope.map(LitStr::value).as_deref() {
        None | Some("Namespaced") => Ok("Namespaced"),
        Some("Cluster") => Ok("Cluster"),
        Some(other) => Err(Error::new_spanned(
            scope,
            format!("{other:?} is no scope; a scope is \"Namespaced\" or \"Cluster\""),
        )),
    }
}

/// Returns the calls that add the object's members, except for those that every object has.
fn members(input: &DeriveInput) -> Result<Vec<TokenStream>> {
    let Data::Struct(data) = &input.data else {
        return Ok(Vec::new());
    };
    let case = Container::of(&input.attrs)?.case;
    let mut calls = Vec::new();
    for field in &data.fields {
        let member = Member::of(field, case)?;
        let name = &member.names[0];
        let is_own = !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str());
        if is_own && !member.skipped {
            let type_ = &field.ty;
            let required = !is_optional(field)?;
            calls.push(quote!(.member::<#type_>(#name, #required)));
        }
    }
    Ok(calls)
}

/// Reports whether a member may be absent: it is an `Option`, or has a default.
fn is_optional(field: &Field) -> Result<bool> {
    let is_option = |type_: &Type| match type_ {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Option"),
        _ => false,
    };
    let mut has_default = false;
    for attribute in field
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("serde"))
    {
        let metas = attribute.parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated)?;
        has_default |= metas.iter().any(|meta| meta.path().get_ident().is_some_and(is_default));
    }
    Ok(is_option(&field.ty) || has_default)
}

fn is_default(name: &Ident) -> bool {
    name.unraw() == "default"
}

/// Returns the doc comment, its lines joined as schemars does: a paragraph's lines stay lines.
fn description(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}
