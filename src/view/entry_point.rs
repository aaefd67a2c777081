//! Entry points that become scripts (packaging specifications, "Entry points"; conda's
//! `noarch: python` packages use the same form).

/// `name = module:object`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryPoint {
    /// File name of the script.
    pub name: String,
    /// Dotted module.
    module: String,
    /// Dotted object within the module.
    object: String,
}

impl EntryPoint {
    /// Reads `name = module:object [extra, …]`. Extras are obsolete and ignored.
    ///
    /// # Errors
    ///
    /// A reason, in words, why no script can be made.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (name, reference) = text.split_once('=').ok_or("it has no `=`")?;
        let name = name.trim();
        if name.is_empty() || name == "." || name == ".." {
            return Err("it has no name");
        }
        if name.contains('/') || name.chars().any(char::is_control) {
            return Err("its name is no file name");
        }
        let reference = match reference.split_once('[') {
            Some((reference, extras)) if extras.trim_end().ends_with(']') => reference,
            Some(_) => return Err("its extras have no closing bracket"),
            None => reference,
        };
        let (module, object) =
            reference.split_once(':').ok_or("it names a module and no function in it")?;
        let (module, object) = (module.trim(), object.trim());
        if !is_dotted(module) {
            return Err("its module is no dotted Python name");
        }
        if !is_dotted(object) {
            return Err("its function is no dotted Python name");
        }
        let [name, module, object] = [name, module, object].map(str::to_owned);
        Ok(EntryPoint { name, module, object })
    }

    /// The script below its first line.
    pub fn script(&self) -> String {
        let EntryPoint { module, object, .. } = self;
        let root = object.split('.').next().unwrap_or(object);
        format!(
            "import sys\n\nfrom {module} import {root}\n\n\
             if __name__ == \"__main__\":\n    sys.exit({object}())\n"
        )
    }
}

fn is_dotted(text: &str) -> bool {
    text.split('.').all(|part| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c == '_' || c.is_alphabetic())
            && chars.all(|c| c == '_' || c.is_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_packages_declare() {
        for (text, name, module, object) in [
            ("a = m:f", "a", "m", "f"),
            ("a=m:f[cli]", "a", "m", "f"),
            ("a = m.n : C.run [x, y]", "a", "m.n", "C.run"),
            ("memray3.13 = memray.commands:main", "memray3.13", "memray.commands", "main"),
            ("with space = m:f", "with space", "m", "f"),
        ] {
            let entry = EntryPoint::parse(text).unwrap();
            assert_eq!((&*entry.name, &*entry.module, &*entry.object), (name, module, object));
        }
    }

    #[test]
    fn refuses_what_names_no_object() {
        for text in [
            "a",
            "a = m",
            "= m:f",
            "a = :f",
            "a = m:",
            "../a = m:f",
            "a/b = m:f",
            "a = m:f[x",
            "a = m:f()",
            "a = os; x:f",
            ".. = m:f",
        ] {
            assert!(EntryPoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn imports_the_root_and_calls_the_whole() {
        let script = EntryPoint::parse("a = m.n:C.run").unwrap().script();
        assert!(script.contains("from m.n import C\n") && script.contains("sys.exit(C.run())"));
    }
}
